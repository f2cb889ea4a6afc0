//! A switch: each output sends one message after the other.

use std::sync::Arc;
use std::time::Duration;

use nexosim::model::{Context, Model, schedulable};
use nexosim::ports::Output;
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use super::time::{Server, Time};
use super::{Flight, Shared};

#[derive(Default, Serialize, Deserialize)]
pub(super) struct Switch {
    number: u32,
    ports: Vec<(Output<Flight>, Server)>,
    latency: Time,
    link_latency: Time,
    /// The engine could save models, which we never do.
    #[serde(skip)]
    shared: Arc<Shared>,
}

#[Model]
impl Switch {
    pub(super) fn new(number: u32, shared: Arc<Shared>) -> Self {
        Self {
            number,
            latency: Time::from_nanoseconds(shared.parameters.switch_latency),
            link_latency: Time::from_nanoseconds(shared.parameters.link_latency),
            shared,
            ports: Vec::new(),
        }
    }

    /// Adds the next port.
    pub(super) fn add(&mut self, link: Output<Flight>) {
        self.ports.push((link, Server::default()));
    }

    /// A message is on its way to this switch.
    pub(super) fn arrive(&mut self, flight: Flight, cx: &Context<Self>) {
        let wait = flight.head - Time::of(cx.time());
        // A link's latency is never 0, so the head is in the future, unless the time has come to its end.
        let wait = wait.duration().max(Duration::from_nanos(1));
        let scheduled = cx.schedule_event(wait, schedulable!(Self::forward), flight);
        debug_assert!(scheduled.is_ok());
    }

    /// Its head is here.
    #[nexosim(schedulable)]
    async fn forward(&mut self, flight: Flight) {
        let port = self.shared.routes.port(self.number, flight.from, flight.to);
        // Each pair's way was looked for before the start.
        let Some((link, server)) = port.and_then(|port| self.ports.get_mut(port as usize)) else {
            return;
        };
        let carried = Time::from_nanoseconds(self.shared.parameters.carried(flight.bytes));
        let carry = |machine: &mut Machine| machine.carry(flight.from, flight.head, carried);
        let head = self.shared.machine(carry).unwrap_or(flight.head);
        let start = server.serve(head + self.latency, flight.duration);
        let head = start + self.link_latency;
        link.send(Flight { head, ..flight }).await;
    }
}
