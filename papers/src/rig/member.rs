//! Two ranks whose messages go from a memory of one to that of the other.

use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::party::Party;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::{Node, Shared};
use warpbell_paper_kernels::path::Path;
use warpbell_patterns::proxy::host::{ProxiedQueue, Proxy};
use warpbell_patterns::trigger::host::Triggers;

use super::{Driver, End, Ends};
use crate::Error;

/// A rank of two in this process.
pub struct Member {
    /// Which one.
    pub rank: usize,
    /// Its end, connected to that of the other rank.
    pub end: End,
    /// What it sends from, and where it receives.
    pub memory: Memory,
    /// Its queues as operations that kernels trigger, a tag for each part, where that is their driver.
    pub triggers: Option<Triggers>,
    /// Its queues in the hands of a proxy, where that is their driver. Dropped before their proxy.
    proxied: Option<(Vec<ProxiedQueue>, Proxy)>,
    /// Where memory and signals of the other rank begin.
    there: [Remote; 2],
}

impl Member {
    /// The ranks that this process runs of two with so many parts, and so many bytes of memory each: both, over a NIC of
    /// their own, or its own, connected to that of the other process.
    ///
    /// # Errors
    /// As [`Ends::new`].
    pub fn of_two(
        party: &Party,
        driver: Driver,
        parts: u32,
        depth: u32,
        bytes: usize,
    ) -> Result<Vec<Self>, Error> {
        let ends = Ends::new(party, party.node(), [driver; 2], [parts, 1], depth)?;
        let memories = ends.each(|end| end.memory(party.node(), bytes))?;
        let targets = memories.each_ref().map(|own| (own.as_ref(), bytes as u32));
        let begin = ends.begin(party, targets)?;
        let here = ends.ends.into_iter().zip(memories).enumerate();
        let mut members: Vec<Self> = here
            .filter_map(|(rank, (end, memory))| {
                Some(Self {
                    rank,
                    end: end?,
                    memory: memory?,
                    triggers: None,
                    proxied: None,
                    there: begin[1 - rank],
                })
            })
            .collect();
        for member in &mut members {
            match driver {
                Driver::Host | Driver::Kernel => {}
                Driver::Triggered => member.triggers = Some(member.end.triggers()?),
                Driver::Proxy => {
                    let proxy = Proxy::start(1)?;
                    let queues = member.end.served(party.node(), &proxy)?;
                    member.proxied = Some((queues, proxy));
                }
            }
        }
        Ok(members)
    }

    /// Its kernel's handles of its queues, or of those that a proxy serves.
    ///
    /// # Errors
    /// A queue that is open elsewhere; no memory for them.
    pub fn handles(&self, node: &Node) -> Result<Shared<[SendQueueHandle<'_>]>, Error> {
        let Some((queues, _)) = &self.proxied else {
            return self.end.handles(node);
        };
        let handle = |at: usize| queues[at].send_queue();
        Ok(Shared::slice(node.placement(), queues.len(), handle)?)
    }

    /// From its memory to the other rank's, by queues with these handles: messages of `bytes` bytes.
    pub fn path<'a>(&'a self, queues: &'a [SendQueueHandle<'a>], bytes: u32) -> Path<'a> {
        self.end.path_to(queues, &self.memory, self.there, bytes)
    }
}

#[cfg(test)]
mod tests {
    use warpbell::wqe::Wqe;
    use warpbell::{Deadline, Exclusive};

    use super::*;

    #[test]
    fn what_a_kernel_posts_to_a_proxied_member_goes_by_the_proxy() {
        let node = Node::cpu();
        let party = Party::alone(&node);
        for (driver, by_proxy) in [(Driver::Kernel, 0), (Driver::Proxy, 1)] {
            let members = Member::of_two(&party, driver, 2, 16, 64).unwrap();
            for member in &members {
                let handles = member.handles(&node).unwrap();
                assert_eq!(handles.len(), 2);
                let mut queue = handles[1].open::<Exclusive>().unwrap();
                let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
                let limit = Deadline::after_ms(300_000);
                queue.wait(ticket, limit).unwrap();
                let queues = member.proxied.iter().flat_map(|(queues, _)| queues);
                let posts: u64 = queues.map(|queue| queue.proxied().posts).sum();
                assert_eq!(posts, by_proxy, "{driver:?}");
            }
        }
    }
}
