//! Kernels of the test suite. The host says in plain data what each thread is to do, and finds in plain data
//! what came of it; what is right, the host decides.
//!
//! | kernel | what it does |
//! |---|---|
//! | [`ActiveAsk`], [`ActiveServe`] | send tasks, and run them |
//! | [`ActiveLaunched`] | is launched by such tasks, by a dispatcher that looks for them |
//! | [`Requests`] | posts a list of work requests and waits for them |
//! | [`CpnetPing`] | plays ComP-Net's example, of work-groups that ping each other |
//! | [`CommonFlood`] | many queues over one completion queue, each with as much as it can carry |
//! | [`ExpertRound`] | makes a round of an exchange with experts, or halves of it |
//! | [`Flood`] | every thread pushes as much as it can through one queue |
//! | [`GaspiCalls`] | makes a list of GASPI's calls |
//! | [`GaspiStorm`] | notifications from all blocks of a rank for all blocks of another one |
//! | [`Inbound`](crate::inbound::Inbound) | sends messages and looks at every byte once it knows that they are there |
//! | [`Receive`] | posts receives and takes messages |
//! | [`Round`] | counts on, in a graph that launches itself |
//! | [`TeamCalls`] | makes calls of a team |
//! | [`TriggerChain`] | triggers the first operations of chains, and waits for the last ones |
//! | [`TriggerJoint`] | triggers what the host registers while it runs |
//! | [`TriggerStorm`] | triggers in any order against the registration of their operations |
//! | [`Trouble`] | stays, panics, or writes where there is no memory |

mod active_launched;
mod active_storm;
mod arguments;
mod common_flood;
mod cpnet_ping;
mod ending;
mod experts;
mod flood;
mod gaspi_calls;
mod gaspi_storm;
mod inbound;
mod mode;
mod receive;
mod requests;
mod round;
mod team_calls;
mod trigger_chain;
mod trigger_joint;
mod trigger_storm;
mod trouble;

pub use active_launched::{
    ActiveLaunched, suite_active_answer, suite_active_dispatch, suite_active_launched,
};
pub use active_storm::{
    ActiveAsk, ActiveServe, AskStep, Message as ActiveMessage, Seen, suite_active_ask,
    suite_active_serve,
};
pub use arguments::{Kernel, Output};
pub use common_flood::{CommonFlood, suite_common_flood};
pub use cpnet_ping::{CpnetPing, suite_cpnet_ping};
pub use ending::{Ending, EndingWords};
pub use experts::{ExpertRound, suite_experts, suite_experts_packed};
pub use flood::{Flood, Pour, suite_flood};
pub use gaspi_calls::{GASPI_MODES, GaspiCall, GaspiCalls, GaspiVerb, Returned, suite_gaspi_calls};
pub use gaspi_storm::{Caught, GaspiStorm, suite_gaspi_storm};
pub use inbound::suite_inbound;
pub use mode::{DoorbellKind, Mode, ScopeKind, SharingKind};
pub use receive::{Message, MessageKind, Receive, suite_receive};
pub use requests::{
    MAX_INLINE, MAX_PIECES, MAX_TICKETS, Request, Requests, Verb, Waiting, suite_requests,
};
pub use round::{Round, suite_round};
#[cfg(not(target_arch = "nvptx64"))]
pub use team_calls::{PlainTeam, TEAM_KERNELS, TeamKernel};
pub use team_calls::{TeamCall, TeamCalls, TeamVerb};
pub use trigger_chain::{TriggerChain, suite_trigger_chain};
pub use trigger_joint::{TriggerJoint, suite_trigger_joint};
pub use trigger_storm::{TriggerStorm, suite_trigger_storm};
pub use trouble::{Stray, Trouble, TroubleKind, suite_stray, suite_trouble};
