//! Large READs and WRITEs in segments.

use mlx5_wqe::{Local, Remote, Wqe};

use crate::Deadline;
use crate::error::PostError;
use crate::queue::{Scope, SendQueue, Sharing, Ticket};

impl<S: Sharing, C: Scope> SendQueue<'_, S, C> {
    /// Reads from the other end in READs of `segment` bytes each, the last one of what is left, under one doorbell; with
    /// `segment` 0 in a single one. The threads of a scope make the call together, with the same arguments, for one
    /// transfer. The ticket is the last READ's: all of it is there once that is done.
    ///
    /// A NIC that fetches a large READ keeps others waiting; `docs/how-to/tuning.md` says where it matters.
    ///
    /// READs of a queue are executed in order. If one fails, those before it have brought their bytes, those behind it
    /// are flushed, and the queue has failed as ever.
    ///
    /// # Errors
    /// As for [`batch`](Self::batch): `TooManyBlocks` for more segments than half of the ring; `Empty`, `TooLong` for a
    /// segment that is too long. Nothing was posted then.
    #[inline(always)]
    pub fn read_in_segments(
        &mut self,
        local: Local,
        remote: Remote,
        segment: u32,
        deadline: Deadline,
    ) -> Result<Ticket, PostError> {
        self.in_segments(local, remote, segment, deadline, Wqe::read)
    }

    /// Writes to the other end in WRITEs of `segment` bytes each, as [`read_in_segments`](Self::read_in_segments) reads. A
    /// signal that is posted behind them comes behind all bytes.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn write_in_segments(
        &mut self,
        local: Local,
        remote: Remote,
        segment: u32,
        deadline: Deadline,
    ) -> Result<Ticket, PostError> {
        self.in_segments(local, remote, segment, deadline, Wqe::write)
    }

    /// Moves bytes by what `make` makes of each segment's two ends.
    #[inline(always)]
    fn in_segments(
        &mut self,
        local: Local,
        remote: Remote,
        segment: u32,
        deadline: Deadline,
        make: impl Fn(Local, Remote) -> Wqe<1>,
    ) -> Result<Ticket, PostError> {
        let bytes = local.length;
        if bytes == 0 {
            return Err(PostError::Empty);
        }
        let segment = match segment {
            0 => bytes,
            segment => segment.min(bytes),
        };
        let limit = self.handle.max_message;
        // Here, where all threads of the scope see it: only the leader has a request to be refused.
        if segment > limit {
            return Err(PostError::TooLong {
                bytes: segment.into(),
                limit,
            });
        }
        let mut batch = self.batch(bytes.div_ceil(segment), deadline)?;
        let mut newest = Ticket::NOTHING;
        let mut done = 0;
        while done < bytes {
            let length = segment.min(bytes - done);
            let request = make(
                Local {
                    address: local.address.wrapping_add(done.into()),
                    length,
                    ..local
                },
                Remote {
                    address: remote.address.wrapping_add(done.into()),
                    ..remote
                },
            );
            done += length;
            let request = match done == bytes {
                true => request.signalled(),
                false => request,
            };
            newest = batch.post_if(C::leads().then_some(request))?;
        }
        Ok(newest)
    }
}
