//! What keys open.

use super::super::command::Access;
use super::super::desk::{Key, Wanted};
use super::super::lanes::Lanes;
use super::super::loan::Loan;
use super::super::memory::{Memory, Small, is_small};
use super::super::packet::Range;
use super::super::plain::PlainWrite;
use super::Crew;

/// Whether keys open what a write wants.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    Yes,
    No,
    /// One has to be looked up.
    Unknown,
}

impl Opens {
    /// Whether what is known of a key opens a range.
    #[inline(always)]
    fn of(key: &Key<'_>, wanted: Wanted, range: Range) -> Self {
        match key.wanted == wanted {
            true if key.window.spans(range) => Self::Yes,
            true => Self::No,
            false => Self::Unknown,
        }
    }
}

impl<'t, M: Memory, L: Lanes> Crew<'_, 't, M, L> {
    /// Whether the keys of this lane's write open what it wants, which of them was asked last, and the payload, if it
    /// is small.
    #[inline(always)]
    pub(super) fn open(
        &self,
        loan: &Loan,
        write: &PlainWrite,
    ) -> (Opens, Option<Wanted>, Option<Small>) {
        let Range { address, length } = write.source;
        let [own, peer] = loan.domains;
        let own = Wanted {
            key: write.key.unwrap_or_default(),
            domain: own,
            access: Access::empty(),
        };
        let peer = Wanted {
            key: write.remote.key.0,
            domain: peer,
            access: Access::REMOTE_WRITE,
        };
        let target = Range {
            address: write.remote.address,
            length,
        };
        // Both are looked up before the first is looked at.
        let (own_key, peer_key) = (self.desk.key(own), self.desk.key(peer));
        // Inline data lie in the ring, and want no key.
        let inline = write.key.is_none();
        let opens = match inline {
            true => Opens::Yes,
            false => Opens::of(&own_key, own, write.source),
        };
        if opens != Opens::Yes {
            return (opens, Some(own), None);
        }
        let opens = Opens::of(&peer_key, peer, target);
        if opens != Opens::Yes {
            return (opens, Some(peer), None);
        }
        // Loaded together, so that all take the time of one. Data that a key opens no more go nowhere; their memory
        // stays as long as the loan, because only a command takes it away.
        // SAFETY: the range was just checked against registered memory, or lies in the ring.
        let data = is_small(address, target.address, length)
            .then(|| unsafe { self.memory.load_small(address, length) });
        let revocations = [&own_key, &peer_key].map(|key| key.window.revocation());
        let revoked = !inline && own_key.window.is_revoked_by(revocations[0])
            || peer_key.window.is_revoked_by(revocations[1]);
        match revoked {
            true => (Opens::No, None, data),
            false => (Opens::Yes, None, data),
        }
    }
}
