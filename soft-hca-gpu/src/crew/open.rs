//! What keys open.
//!
//! Nothing here is asked before all is on its way: a key's words, what takes keys away, the payload. And nothing branches
//! that need not: on a GPU a branch costs as much as several comparisons.

use super::Crew;
use crate::desk::Key;
use crate::lanes::Lanes;
use crate::memory::{LaneMemory, Small, is_small};
use warpbell_soft_hca::engine::Access;
use warpbell_soft_hca::engine::loan::{Loan, Wanted};
use warpbell_soft_hca::engine::packet::Range;
use warpbell_soft_hca::engine::plain::PlainWrite;

/// What the keys said of a write.
pub(super) struct Opened {
    /// They open what it wants, unless one of them [was taken away](Self::is_revoked).
    pub(super) opens: bool,
    /// One has to be looked up: this.
    pub(super) unknown: bool,
    pub(super) wanted: Wanted,
    /// The payload passes through a lane's registers.
    pub(super) small: bool,
    /// It, if it is small and the keys open it.
    pub(super) data: Small,
    /// What stands in the words that take keys away, the own one's and the peer's, and what would take them away.
    revocations: [u32; 2],
    marks: [u32; 2],
    /// There is no own key.
    inline: bool,
}

impl Opened {
    /// Whether a key that opens was taken away. To be asked as late as may be: the answer comes with the payload.
    #[inline(always)]
    pub(super) const fn is_revoked(&self) -> bool {
        let [own, peer] = self.revocations;
        (!self.inline & (own == self.marks[0])) | (peer == self.marks[1])
    }
}

/// Whether a key is known, and opens a range.
#[inline(always)]
fn ask(key: &Key<'_>, wanted: Wanted, range: Range) -> (bool, bool) {
    let known = (key.wanted.key == wanted.key)
        & (key.wanted.domain == wanted.domain)
        & (key.wanted.access == wanted.access);
    (known, known & key.window.spans(range))
}

impl<'t, M: LaneMemory, L: Lanes> Crew<'_, 't, M, L> {
    /// Whether the keys of this lane's write open what it wants, and the payload, if it is small.
    #[inline(always)]
    pub(super) fn open(&self, loan: &Loan, write: &PlainWrite) -> Opened {
        let Range { address, length } = write.source;
        let [own, peer] = loan.domains;
        let own = Wanted {
            key: write.key,
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
        let (own_key, peer_key) = (self.desk.key(own), self.desk.key(peer));
        // Of whatever key is there.
        let revocations = [&own_key, &peer_key].map(|key| key.window.revocation());
        let (own_known, own_opens) = ask(&own_key, own, write.source);
        let (peer_known, peer_opens) = ask(&peer_key, peer, target);
        // Inline data lie in the ring, and want no key.
        let own_known = own_known | write.inline;
        let opens = write.plain & (own_opens | write.inline) & peer_opens;
        let mut opened = Opened {
            opens,
            unknown: write.plain & !(own_known & peer_known),
            wanted: match own_known {
                true => peer,
                false => own,
            },
            small: is_small(address, target.address, length),
            data: Small::default(),
            revocations,
            marks: [own_key.window.mark(), peer_key.window.mark()],
            inline: write.inline,
        };
        if opened.opens & opened.small {
            // Data that a key opens no more go nowhere; their memory stays as long as the loan, because only a command
            // takes it away.
            // SAFETY: the range was just checked against registered memory, or lies in the ring.
            opened.data = unsafe { self.memory.load_small(address, length) };
        }
        opened
    }
}
