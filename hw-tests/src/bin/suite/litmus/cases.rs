//! The cases: how WQEs are posted, where everything lies, how far fences reach.

use std::fmt;

use warpbell::FenceReach;
use warpbell_host_init::Kernels;
use warpbell_hw_tests::here;
use warpbell_kernels::litmus::Fault;

/// A kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Thread,
    Warp,
    Block,
    Shared,
    Lanes,
    LanesAlone,
    CompletionsThread,
    CompletionsWarp,
    CompletionsBlock,
    CompletionsShared,
    Hand,
}

impl Way {
    /// Whether the poster knows the numbers of its WQEs beforehand.
    pub fn knows_numbers(self) -> bool {
        use Way::{Lanes, LanesAlone, Shared};
        !matches!(self, Shared | Lanes | LanesAlone)
    }

    /// Blocks that post to a queue.
    pub fn posters(self) -> u32 {
        match self {
            Self::Shared => 2,
            _ => 1,
        }
    }
}

/// Memory that kernels reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The kernels' own: the GPU's, and the host's for kernels on the CPU.
    Own,
    /// Pinned memory of the host.
    Pinned,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "own",
            Self::Pinned => "pinned",
        })
    }
}

/// What the NIC sees first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The doorbell of a queue without a record.
    DoorbellAlone,
    /// The doorbell, then the record.
    Doorbell,
    /// The record.
    Record,
}

impl Sight {
    /// Whether there is a record.
    pub fn has_record(self) -> bool {
        self != Self::DoorbellAlone
    }
}

/// Where everything lies.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    pub ring: Memory,
    pub record: Memory,
    pub doorbell: Memory,
    pub completion: Memory,
    pub data: Memory,
}

/// A case.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub way: Way,
    pub sight: Sight,
    pub reach: FenceReach,
    pub fault: Fault,
    pub places: Places,
}

impl Case {
    /// Whether completions bring data.
    pub fn brings(&self) -> bool {
        use Way::{CompletionsBlock, CompletionsShared, CompletionsThread, CompletionsWarp};
        matches!(
            self.way,
            CompletionsThread | CompletionsWarp | CompletionsBlock | CompletionsShared
        )
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Places {
            ring,
            record,
            doorbell,
            completion,
            data,
        } = self.places;
        if self.brings() {
            write!(f, "CQE {completion}, data {data}")?;
        } else {
            write!(f, "ring {ring}, ")?;
            if self.sight.has_record() {
                write!(f, "record {record}, ")?;
            }
            write!(f, "doorbell {doorbell}")?;
        }
        match self.reach {
            FenceReach::Gpu => f.write_str(", fences for the GPU"),
            FenceReach::System => f.write_str(", fences for the system"),
        }
    }
}

/// Whether a twin must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// By hand, and right.
    Sound,
    /// In the wrong order.
    Faulty,
    /// Without a fence.
    Unfenced,
}

/// The kinds of memory that there are.
fn memories() -> &'static [Memory] {
    match here::kernels() {
        Kernels::Cpu(_) => &[Memory::Own],
        Kernels::Gpu(_) => &[Memory::Own, Memory::Pinned],
    }
}

/// Every place for ring, record and doorbell; the rest lies in the kernels' own memory.
fn places_to_post(sight: Sight) -> Vec<Places> {
    let mut places = Vec::new();
    for &ring in memories() {
        for &doorbell in memories() {
            let records = match sight.has_record() {
                true => memories(),
                false => &[Memory::Own],
            };
            for &record in records {
                places.push(Places {
                    ring,
                    record,
                    doorbell,
                    completion: Memory::Own,
                    data: Memory::Own,
                });
            }
        }
    }
    places
}

/// Every place for the CQE and the data.
fn places_to_bring() -> Vec<Places> {
    let mut places = Vec::new();
    for &completion in memories() {
        for &data in memories() {
            places.push(Places {
                ring: Memory::Own,
                record: Memory::Own,
                doorbell: Memory::Own,
                completion,
                data,
            });
        }
    }
    places
}

const REACHES: [FenceReach; 2] = [FenceReach::Gpu, FenceReach::System];

/// Every place and reach of a way.
fn cases(way: Way, sight: Sight, fault: Fault, places: &[Places]) -> Vec<Case> {
    let case = |places: &Places, reach| Case {
        way,
        sight,
        reach,
        fault,
        places: *places,
    };
    let both = |places| REACHES.map(|reach| case(places, reach));
    places.iter().flat_map(both).collect()
}

/// Everything that the library does, and its name.
pub fn of_the_library() -> Vec<(String, Vec<Case>)> {
    use Way as W;
    let posting = [
        ("a thread", W::Thread),
        ("a warp", W::Warp),
        ("a block", W::Block),
        ("two blocks", W::Shared),
        ("lanes of a warp, each for itself", W::Lanes),
        ("lanes of a warp, and one alone", W::LanesAlone),
    ];
    let sights = [
        ("without a record", Sight::DoorbellAlone),
        ("the NIC looks at the doorbell", Sight::Doorbell),
        ("the NIC looks at the record", Sight::Record),
    ];
    let completions = [
        ("a thread waits for data", W::CompletionsThread),
        ("a warp waits for data", W::CompletionsWarp),
        ("a block waits for data", W::CompletionsBlock),
        ("a sharer waits for data", W::CompletionsShared),
    ];
    let mut all = Vec::new();
    for (who, way) in posting {
        for (what, sight) in sights {
            let cases = cases(way, sight, Fault::None, &places_to_post(sight));
            all.push((format!("{who}, {what}"), cases));
        }
    }
    for (name, way) in completions {
        let places = places_to_bring();
        let cases = cases(way, Sight::DoorbellAlone, Fault::None, &places);
        all.push((name.into(), cases));
    }
    all
}

/// Twins: posts by hand, and NICs with a fault.
pub fn twins() -> Vec<(Twin, &'static str, Vec<Case>)> {
    use Sight::{Doorbell, DoorbellAlone, Record};
    let by_hand = |twin, name, sight, fault| {
        let places = places_to_post(sight);
        (twin, name, cases(Way::Hand, sight, fault, &places))
    };
    let brought = |twin, name, fault| {
        let places = places_to_bring();
        let way = Way::CompletionsThread;
        (twin, name, cases(way, DoorbellAlone, fault, &places))
    };
    vec![
        by_hand(Twin::Sound, "by hand, doorbell", Doorbell, Fault::None),
        by_hand(
            Twin::Faulty,
            "a WQE behind its doorbell",
            DoorbellAlone,
            Fault::WqeLast,
        ),
        by_hand(
            Twin::Faulty,
            "a WQE behind its record",
            Record,
            Fault::WqeLast,
        ),
        by_hand(
            Twin::Faulty,
            "a record behind its doorbell",
            Doorbell,
            Fault::RecordLast,
        ),
        brought(Twin::Faulty, "data behind its CQE", Fault::CompletionFirst),
        by_hand(
            Twin::Unfenced,
            "no fence between WQE and doorbell",
            DoorbellAlone,
            Fault::WqeUnfenced,
        ),
        by_hand(
            Twin::Unfenced,
            "no fence between WQE and record",
            Record,
            Fault::WqeUnfenced,
        ),
        by_hand(
            Twin::Unfenced,
            "no fence between record and doorbell",
            Doorbell,
            Fault::RecordUnfenced,
        ),
        brought(
            Twin::Unfenced,
            "no release fence before a CQE's last word",
            Fault::CompletionUnfenced,
        ),
        brought(
            Twin::Unfenced,
            "no acquire fence behind a CQE's last word",
            Fault::NotAcquired,
        ),
    ]
}
