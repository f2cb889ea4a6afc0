//! Commands to the card, carried out by the software HCA.

pub mod capabilities;
pub mod create;
pub mod steps;

use mlx5_wqe::prm::{
    Command, CommandOpcode, CommandStatus, PrmError, Record, Refusal, command_opcode,
};
use warpbell_soft_hca::engine::CommandError;

use crate::attributes::Errno;
use crate::machine::Machine;

/// A command, and the bytes that its answer may have.
pub struct Call<'a> {
    pub command: &'a [u8],
    pub room: usize,
}

/// Why a command was not carried out.
pub enum Failure {
    /// The card refuses it.
    Refused(Refusal),
    /// It did not come to the card.
    System(Errno),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Why the software HCA refuses a command: the low byte of its syndromes, whose high half is "WB".
#[derive(Clone, Copy, Debug)]
pub enum Syndrome {
    /// There is no such command.
    Opcode = 1,
    /// The command is too short.
    Input,
    /// The room for the answer is too small.
    Output,
    /// These capabilities are not told.
    Capabilities,
    /// A queue lies outside the memory that it names, or names none.
    Umem,
    /// There is no such UAR page.
    Uar,
    /// There is no such event queue.
    EventQueue,
    /// Something is asked for that the HCA has not.
    Unsupported,
    /// The path cannot be: port, GID index, MTU, no global route header where one is due.
    Path,
    /// Nobody has the other end's GID.
    Unreachable,
    /// There is no such protection domain.
    Domain,
    /// There is no such completion queue.
    CompletionQueue,
    /// There is no such queue pair, or it is another.
    QueuePair,
    /// The queue pair's state does not allow it.
    State,
    /// A table is full.
    Full,
    /// A number is out of its range.
    Range,
    /// There is no such set of counters.
    CounterSet,
    /// A field is set that this command does not take.
    Field,
    /// There is no such shared receive queue.
    SharedReceiveQueue,
}

impl Syndrome {
    /// The refusal with this reason.
    pub fn with(self, status: CommandStatus) -> Refusal {
        let syndrome = 0x5742_0000 | self as u32;
        Refusal { status, syndrome }
    }

    fn bad_parameter(self) -> Refusal {
        self.with(CommandStatus::BAD_PARAMETER)
    }
}

impl Call<'_> {
    /// What is commanded.
    pub fn opcode(&self) -> Option<CommandOpcode> {
        command_opcode(self.command)
    }

    /// The command, if its answer has room.
    pub fn read<C: Command>(&self) -> Result<C, Failure> {
        self.read_with_room(C::Answer::BYTES)
    }

    /// The command, if its answer has room for as many bytes.
    fn read_with_room<C: Command>(&self, least: usize) -> Result<C, Failure> {
        if self.room < least {
            return Err(Syndrome::Output
                .with(CommandStatus::BAD_OUTPUT_LENGTH)
                .into());
        }
        C::read(self.command).map_err(|error| match error {
            PrmError::Short { .. } => Syndrome::Input.with(CommandStatus::BAD_INPUT_LENGTH).into(),
            // Nobody reads a command but by its opcode.
            _ => Failure::System(Errno(libc::EINVAL)),
        })
    }
}

/// An answer's bytes.
pub fn bytes(answer: &impl Record) -> Result<Vec<u8>, Failure> {
    fn of<R: Record>(answer: &R) -> Result<Vec<u8>, PrmError> {
        let mut bytes = vec![0; R::BYTES];
        answer.write(&mut bytes)?;
        Ok(bytes)
    }
    // A value of ours that does not fit: the card's own fault.
    of(answer).map_err(|_| Syndrome::Range.with(CommandStatus::INTERNAL).into())
}

/// Gives the engine a command; its refusal is the card's.
pub fn engine<R>(
    machine: &Machine,
    give: impl FnOnce(&mut warpbell_soft_hca::shell::HostEngine<'_>) -> Result<R, CommandError>,
) -> Result<R, Failure> {
    let given = machine.try_command(give).map_err(Failure::System)?;
    given.map_err(|error| {
        let bad_resource = |syndrome: Syndrome| syndrome.with(CommandStatus::BAD_RESOURCE);
        Failure::Refused(match error {
            CommandError::TableFull => Syndrome::Full.with(CommandStatus::NO_RESOURCES),
            CommandError::NoProtectionDomain => bad_resource(Syndrome::Domain),
            CommandError::NoCompletionQueue => bad_resource(Syndrome::CompletionQueue),
            CommandError::NoQueuePair => bad_resource(Syndrome::QueuePair),
            CommandError::DoorbellTaken => bad_resource(Syndrome::Uar),
            CommandError::IllegalTransition { .. } => {
                Syndrome::State.with(CommandStatus::BAD_QP_STATE)
            }
            CommandError::BadMtu => Syndrome::Path.bad_parameter(),
            _ => Syndrome::Range.bad_parameter(),
        })
    })
}
