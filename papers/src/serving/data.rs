//! Pictures, answers and the network's values, in memory of either end.

use std::{iter, thread};

use rand::SeedableRng;
use rand::rngs::SmallRng;
use warpbell_bench::run::memory::{self, Memory};
use warpbell_host_init::{Buffer, Node, Placement};
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::distribution::BUCKETS;
use warpbell_paper_kernels::network::{Network, Step};
use warpbell_paper_kernels::serving::{Message, ServingClient, ServingServer};

use super::model::{Model, Picture};
use super::plan::Plan;
use super::{Case, PICTURES, VALUE};
use crate::Error;
use crate::rig::{Driver, End};

/// Where a network's values lie, and what its blocks meet by.
pub(super) struct Rooms {
    plan: Plan,
    steps: Buffer,
    weights: Buffer,
    planes: Buffer,
    pub(super) arrivals: Buffer,
    /// What a server keeps from one launch to the next.
    pub(super) state: Buffer,
    /// A picture, where what the NIC reaches is not the kernels' own.
    pub(super) picture: Buffer,
    /// Its answer there.
    pub(super) answer: Buffer,
}

impl Rooms {
    pub(super) fn new(case: &Case, node: &Node, model: &Model) -> Result<Self, Error> {
        let own = kernels_own(node);
        let plan = case.plan()?;
        let steps: Vec<u8> = plan.steps.iter().flat_map(bytes_of_step).collect();
        let weights = bytes_of(model.values());
        let planes = VALUE as usize * plan.planes.next_multiple_of(2) as usize;
        let rooms = Self {
            steps: Buffer::placed(own, steps.len())?,
            weights: Buffer::placed(own, weights.len())?,
            // At least a word, for a network of one layer.
            planes: Buffer::placed(own, planes.max(8))?,
            arrivals: Buffer::placed(own, 8 * case.blocks as usize)?,
            state: Buffer::placed(own, 8 * ServingServer::STATE as usize)?,
            picture: whole_words(own, case.request())?,
            answer: whole_words(own, case.answer())?,
            plan,
        };
        rooms.steps.write(0, &steps)?;
        rooms.weights.write(0, &weights)?;
        Ok(rooms)
    }

    /// The network, with picture and answer here.
    pub(super) fn network(&self, case: &Case) -> Network {
        Network {
            steps: place(&self.steps),
            count: self.plan.steps.len() as u32,
            pixels: case.width * case.height,
            input: place(&self.picture),
            weights: place(&self.weights),
            planes: place(&self.planes),
            output: place(&self.answer),
            arrivals: place(&self.arrivals),
            blocks: case.blocks,
        }
    }
}

pub(super) fn place(buffer: &Buffer) -> Place {
    // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
    unsafe { memory::place(buffer) }
}

/// A step as kernels read it.
fn bytes_of_step(step: &Step) -> [u8; size_of::<Step>()] {
    let Step {
        kind,
        inputs,
        outputs,
        side,
        width,
        height,
        from,
        to,
        weights,
        scale,
        rectified,
        meets,
    } = *step;
    let fields = [
        kind, inputs, outputs, side, width, height, from, to, weights, scale, rectified, meets,
    ];
    let mut bytes = [0; size_of::<Step>()];
    for (bytes, field) in bytes.chunks_exact_mut(size_of::<u32>()).zip(fields) {
        bytes.copy_from_slice(&field.to_ne_bytes());
    }
    bytes
}

/// Memory for a message in whole words, in which kernels go to it.
fn whole_words(own: Placement, message: Message) -> Result<Buffer, Error> {
    let bytes = message.bytes as usize;
    Ok(Buffer::placed(own, bytes.next_multiple_of(8))?)
}

/// Where kernels alone have their memory.
pub(super) fn kernels_own(node: &Node) -> Placement {
    match node.gpu() {
        None => Placement::Host,
        Some(gpu) => Placement::Gpu(gpu),
    }
}

pub(super) fn bytes_of(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// The pictures that are sent in turn: first the given one, if there is one; the others are from the seed.
pub(super) fn pictures(case: &Case, first: Option<&Picture>) -> Vec<Picture> {
    let mut random = SmallRng::seed_from_u64(case.seed);
    let size = [case.width, case.height].map(|pixels| pixels as usize);
    let seeded = iter::repeat_with(|| Picture::random(size, &mut random));
    let all = first.cloned().into_iter().chain(seeded);
    all.take(PICTURES as usize).collect()
}

/// What a loop on the host makes of each.
pub(super) fn answered(model: &Model, pictures: &[Picture]) -> Vec<Vec<f32>> {
    // One thread each: the loops take a while.
    thread::scope(|scope| {
        let one = |picture| scope.spawn(move || model.answer(picture));
        let all: Vec<_> = pictures.iter().map(one).collect();
        let joined = all.into_iter().map(|one| {
            let answer = one.join();
            answer.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect()
    })
}

/// Pictures and answers at a client that is a kernel.
pub(super) struct AskerData {
    pub(super) expected: Buffer,
    /// What came back of the first picture.
    pub(super) kept: Buffer,
    /// How many requests took how long.
    pub(super) histogram: Buffer,
    /// How many ended in each span of time, and how long they took.
    pub(super) over_time: Buffer,
    /// Its [`PICTURES`] pictures.
    pub(super) requests: Memory,
    /// What comes back to it.
    pub(super) returned: Memory,
}

impl AskerData {
    pub(super) fn new(
        case: &Case,
        node: &Node,
        end: &End,
        picture: Option<&Picture>,
    ) -> Result<Self, Error> {
        let pictures = pictures(case, picture);
        let expected = answered(&Model::new(case.architecture, case.seed), &pictures).concat();
        let there = Buffer::placed(kernels_own(node), VALUE as usize * expected.len())?;
        there.write(0, &bytes_of(&expected))?;
        let request = case.request().bytes as usize;
        let data = Self {
            expected: there,
            kept: whole_words(kernels_own(node), case.answer())?,
            histogram: Buffer::placed(kernels_own(node), 8 * BUCKETS as usize)?,
            over_time: Buffer::placed(
                kernels_own(node),
                8 * ServingClient::MOMENT as usize * case.spans(),
            )?,
            requests: end.memory(node, pictures.len() * request)?,
            returned: end.memory(node, case.answer().bytes as usize)?,
        };
        for (index, picture) in pictures.iter().enumerate() {
            data.requests
                .write(index * request, &bytes_of(&picture.values));
        }
        Ok(data)
    }

    /// What came back last of the first picture.
    pub(super) fn last_answer(&self, case: &Case) -> Result<Picture, Error> {
        let mut bytes = vec![0; case.answer().bytes as usize];
        self.kept.read(0, &mut bytes)?;
        let (values, _) = bytes.as_chunks::<{ VALUE as usize }>();
        Ok(Picture {
            width: case.answer_size()[0] as usize,
            values: values
                .iter()
                .map(|value| f32::from_ne_bytes(*value))
                .collect(),
        })
    }

    /// Whether nothing beside pictures and answers was touched.
    pub(super) fn guarded(&self) -> bool {
        let all = [&self.requests, &self.returned];
        all.iter().all(|memory| memory.check_guards().is_ok())
    }
}

/// The same at a server, with its network.
pub(super) struct ServerData {
    pub(super) rooms: Rooms,
    /// Where pictures come.
    pub(super) arrived: Memory,
    /// Where answers are sent from.
    pub(super) answer: Memory,
}

impl ServerData {
    pub(super) fn new(
        case: &Case,
        node: &Node,
        end: &End,
        driver: Driver,
        model: &Model,
    ) -> Result<Self, Error> {
        let memory = |bytes: u32| match driver {
            Driver::Host => end.host_memory(node, bytes as usize),
            Driver::Kernel | Driver::Triggered | Driver::Proxy => end.memory(node, bytes as usize),
        };
        Ok(Self {
            rooms: Rooms::new(case, node, model)?,
            arrived: memory(case.request().bytes)?,
            answer: memory(case.answer().bytes)?,
        })
    }

    /// Whether nothing beside a picture and its answer was touched.
    pub(super) fn guarded(&self) -> bool {
        let all = [&self.arrived, &self.answer];
        all.iter().all(|memory| memory.check_guards().is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::Architecture;

    #[test]
    fn a_given_picture_takes_turns_with_one_of_another_answer() {
        let case = Case::small(9, 8);
        let given = Picture {
            width: 9,
            values: vec![0.5; 72],
        };
        for given in [None, Some(&given)] {
            let all = pictures(&case, given);
            assert_eq!(all.len(), 2);
            assert!(all.iter().all(|one| (one.width, one.height()) == (9, 8)));
            assert!(given.is_none_or(|given| given.values == all[0].values));
            for architecture in [Architecture::Superresolution, Architecture::Squeeze] {
                let model = Model::new(architecture, case.seed);
                let [one, other] = [0, 1].map(|picture| model.answer(&all[picture]));
                assert!(one != other);
            }
        }
    }
}
