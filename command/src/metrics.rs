//! The queues of running processes as metrics for Prometheus, over HTTP.
//!
//! Nothing runs in the processes: each scrape reads their memory, as [`top`](crate::top) does.

mod text;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use oxhttp::Server;
use oxhttp::model::header::{ALLOW, CONTENT_TYPE};
use oxhttp::model::{Body, Method, Request, Response, StatusCode, Version};

use crate::top::Watch;

pub use text::names;

/// Where the metrics are.
const PATH: &str = "/metrics";
/// The text format that Prometheus has always read.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// How long a client may be silent. Others are served meanwhile, up to so many.
const SILENCE: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 64;
/// How often the doorbell records are read between two scrapes. An index of 16 bits must not come round in this time.
const PERIOD: Duration = Duration::from_millis(10);

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve metrics at {address}: {source}")]
pub struct MetricsError {
    /// Where they were to be.
    pub address: SocketAddr,
    /// What the system says.
    pub source: std::io::Error,
}

/// The processes whose metrics are served.
pub struct Exporter {
    watches: Mutex<Vec<Watch>>,
}

impl Exporter {
    /// An exporter of these processes.
    pub fn new(watches: Vec<Watch>) -> Self {
        let watches = Mutex::new(watches);
        Self { watches }
    }

    fn watches(&self) -> MutexGuard<'_, Vec<Watch>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All metrics as they are now.
    pub fn text(&self) -> String {
        let mut watches = self.watches();
        let looks = watches.iter_mut().map(|watch| {
            // A process that has ended, or ends now, is down.
            (watch.pid(), watch.look().ok())
        });
        text::of(&Vec::from_iter(looks))
    }

    /// Lets the counters go on between two scrapes. Never ends.
    pub fn count(&self) -> ! {
        loop {
            for watch in &mut *self.watches() {
                // The next scrape finds what is wrong.
                let _ = watch.count();
            }
            thread::sleep(PERIOD);
        }
    }

    /// Begins to serve the metrics, on threads of its own.
    ///
    /// # Errors
    /// If the address is taken or not of this machine.
    pub fn serve(self: Arc<Self>, address: SocketAddr) -> Result<(), MetricsError> {
        let server = Server::new(move |request| self.answer(request))
            .with_global_timeout(SILENCE)
            .with_max_concurrent_connections(CONNECTIONS)
            .bind(address);
        let started = server.spawn().map(drop);
        started.map_err(|source| MetricsError { address, source })
    }

    fn answer(&self, request: &Request<Body>) -> Response<Body> {
        // After an answer of this version the client ends the connection, which would otherwise be silent for too long.
        let answer = Response::builder().version(Version::HTTP_10);
        let answer = match (request.uri().path(), request.method()) {
            (PATH, &Method::GET) => answer
                .header(CONTENT_TYPE, FORMAT)
                .body(Body::from(self.text())),
            (PATH, _) => answer
                .status(StatusCode::METHOD_NOT_ALLOWED)
                .header(ALLOW, "GET")
                .body(Body::empty()),
            _ => answer
                .status(StatusCode::NOT_FOUND)
                .body(Body::from(format!("The metrics are at {PATH}.\n"))),
        };
        answer.expect("the headers are constants")
    }
}
