//! Packet sequence numbers (IBTA volume 1, 9.7): 24 bits, compared around the circle.

/// The bits of a PSN.
pub(super) const MASK: u32 = 0x00ff_ffff;

/// `psn` and `packets` more.
pub(super) const fn add(psn: u32, packets: u32) -> u32 {
    psn.wrapping_add(packets) & MASK
}

/// How far `a` lies after `b`: negative if before. Meaningful up to 2²³ apart.
pub(super) const fn distance(a: u32, b: u32) -> i32 {
    // The 24 bits go to the top, so that the sign bit is theirs.
    (a.wrapping_sub(b) << 8) as i32 >> 8
}

#[cfg(test)]
mod tests {
    use super::{add, distance};

    #[test]
    fn compares_around_the_wrap() {
        assert_eq!(add(0xff_fffe, 3), 1);
        assert_eq!(distance(1, 0xff_fffe), 3);
        assert_eq!(distance(0xff_fffe, 1), -3);
        assert_eq!(distance(7, 7), 0);
        assert_eq!(distance(0x7f_ffff, 0), 0x7f_ffff);
        assert_eq!(distance(0x80_0000, 0), -0x80_0000);
    }
}
