//! The numbers of an exchange: the same at all members.

/// How a token's values travel to the experts. What comes back from them is [`Bf16`](Format::Bf16) always.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// As they are: a value takes 2 bytes.
    Bf16 = 1,
    /// A value takes 1 byte, and each 128 values have an `f32` that scales them: [`E4m3`](crate::number::E4m3). The kernel
    /// makes them so, once for each token.
    Fp8 = 2,
}

/// What becomes of tokens for which an expert has no slot left.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// They are left out for this expert, and counted. Sender and receiver see how many.
    Drop = 1,
    /// The sender's dispatch is refused, and none of its tokens goes to any expert.
    Refuse = 2,
}

/// How tokens travel to the experts, and outputs back.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A token goes to each of its experts by a request of its own, as soon as it has a slot there. For few tokens.
    LowLatency = 1,
    /// A token goes once to each member that has experts of it, and one sum of their outputs comes back. Up to 32 tokens go
    /// in one request. For many tokens.
    Throughput = 2,
}

/// The numbers of an exchange. `repr(C)`, 36 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Members.
    pub ranks: u32,
    /// Experts of each member: expert `e` is number `e % local` of member `e / local`.
    pub local: u32,
    /// Values of a token: a multiple of 256.
    pub hidden: u32,
    /// Experts that a token goes to at most, up to 32.
    pub top_k: u32,
    /// Tokens of a member at most.
    pub tokens: u32,
    /// Tokens of one member for one expert at most.
    pub capacity: u32,
    /// How values travel to the experts.
    pub format: Format,
    /// What becomes of tokens beyond the capacity.
    pub overflow: Overflow,
    /// How tokens travel to the experts, and outputs back.
    pub mode: Mode,
}

const _: () = assert!(size_of::<Shape>() == 36);

impl Shape {
    /// Experts of all members.
    #[inline(always)]
    pub const fn experts(&self) -> u32 {
        self.ranks * self.local
    }

    /// The member that has an expert, and the expert's number there.
    #[inline(always)]
    pub const fn owner(&self, expert: u32) -> (u32, u32) {
        split(expert, self.local)
    }

    /// The token of a choice that is numbered over all tokens, and its number among the token's.
    #[inline(always)]
    pub const fn choice(&self, pair: u32) -> (u32, u32) {
        split(pair, self.top_k)
    }

    /// Whether a dispatch is refused that has more tokens for an expert than its capacity.
    #[inline(always)]
    pub const fn refuses(&self) -> bool {
        matches!(self.overflow, Overflow::Refuse)
    }

    /// Whether tokens travel packed, once to each member.
    #[inline(always)]
    pub const fn is_packed(&self) -> bool {
        matches!(self.mode, Mode::Throughput)
    }

    /// Words of 8 bytes of a token in bf16.
    #[inline(always)]
    pub const fn hidden_words(&self) -> u32 {
        self.hidden / 4
    }

    /// Words of 8 bytes of a token as it travels to an expert.
    #[inline(always)]
    pub const fn row_words(&self) -> u32 {
        match self.format {
            Format::Bf16 => self.hidden_words(),
            Format::Fp8 => self.hidden / 8 + self.hidden / 256,
        }
    }
}

/// Quotient and remainder, without a branch for a divisor of 0, which no shape has.
#[inline(always)]
pub(super) const fn split(number: u32, by: u32) -> (u32, u32) {
    let by = if by == 0 { 1 } else { by };
    (number / by, number % by)
}
