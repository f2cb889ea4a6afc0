//! What another process may send, for the fuzz target.

use std::fmt::Debug;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::LazyLock;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::RemoteMemory;
use crate::frame::{self, Kind};
use crate::peer::ExchangeError;
use crate::peer::Hello;
use crate::state::Endpoint;

/// Longer than anything here takes: all bytes are there before they are read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Hears what a process says that greets, connects a queue pair, tells of memory and comes to a barrier; then it is
/// gone.
///
/// # Errors
/// What is wrong with it.
///
/// # Panics
/// If something that was heard is not heard again as it was; the system gives no sockets.
pub fn hear(said: &[u8]) -> Result<(), ExchangeError> {
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    theirs.write_all(said).expect("room for what was said");
    drop(theirs);
    one::<Hello>(&ours, Kind::Hello)?;
    one::<Endpoint>(&ours, Kind::Endpoint)?;
    one::<RemoteMemory>(&ours, Kind::Data)?;
    one::<String>(&ours, Kind::Barrier)
}

fn one<T>(stream: &UnixStream, kind: Kind) -> Result<(), ExchangeError>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    /// Empty between two messages.
    static ECHO: LazyLock<(UnixStream, UnixStream)> =
        LazyLock::new(|| UnixStream::pair().expect("two sockets"));
    let heard: T = frame::receive(stream, kind, PATIENCE)?;
    let (ours, theirs) = &*ECHO;
    frame::send(theirs, kind, &heard, PATIENCE).expect("what was heard can be said");
    let again: T = frame::receive(ours, kind, PATIENCE).expect("what was said is heard");
    assert_eq!(heard, again);
    Ok(())
}
