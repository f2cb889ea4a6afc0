//! The wire of an HCA on a host: its links, with faults on purpose before them
//! where a test wants some, and a watch where somebody wants to know.

use std::prelude::v1::*;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::links::Links;
use super::watch::RequestWatch;
use crate::engine::fault::{self, FaultyWire};
use crate::engine::gid::Gid;
use crate::engine::packet::{Header, Packet, Range, WireAddress};
use crate::engine::wire::{Busy, Limits, Retract, Wire};

/// Decides the fate of each packet that an HCA sends: any
/// [`Pattern`](fault::Pattern), for example [`Seeded`](fault::Seeded).
pub struct Faults(Box<dyn Pattern>);

/// A pattern that begins anew for each HCA made with the same options.
trait Pattern: fault::Pattern + Send + Sync {
    fn anew(&self) -> Box<dyn Pattern>;
}

impl<P: fault::Pattern + Clone + Send + Sync + 'static> Pattern for P {
    fn anew(&self) -> Box<dyn Pattern> {
        Box::new(self.clone())
    }
}

impl Faults {
    /// Faults after this pattern.
    pub fn new(pattern: impl fault::Pattern + Clone + Send + Sync + 'static) -> Self {
        Self(Box::new(pattern))
    }
}

impl Clone for Faults {
    fn clone(&self) -> Self {
        Self((*self.0).anew())
    }
}

impl fault::Pattern for Faults {
    fn fate(&mut self, header: &Header) -> fault::Fate {
        self.0.fate(header)
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faults")
    }
}

/// What looks at each packet before the links have it.
struct Before {
    faults: Option<Faults>,
    watch: Option<RequestWatch>,
}

impl fault::Pattern for Before {
    fn fate(&mut self, header: &Header) -> fault::Fate {
        if let Some(watch) = &mut self.watch {
            watch.see(header);
        }
        match &mut self.faults {
            Some(faults) => faults.fate(header),
            None => fault::Fate::Pass,
        }
    }
}

/// The wire of an HCA on a host.
pub struct HostWire(Way);

enum Way {
    /// Packets go straight to the links.
    Plain(Box<Links>),
    /// Packets pass a pattern of faults or a watch first. The wire of faults keeps its
    /// inner wire to itself, so the links are shared with it.
    Faulty {
        wire: Box<FaultyWire<SharedLinks, Before>>,
        links: SharedLinks,
    },
}

/// Links behind a lock that only the owner of the HCA ever takes.
#[derive(Clone)]
struct SharedLinks(Arc<Mutex<Links>>);

impl SharedLinks {
    fn lock(&self) -> MutexGuard<'_, Links> {
        // A panic of the engine ends its HCA; the links have no broken state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// SAFETY: forwards every call to the links, which keep the contract.
unsafe impl Wire for SharedLinks {
    fn limits(&self, to: WireAddress) -> Limits {
        self.lock().limits(to)
    }

    fn find(&self, gid: Gid) -> Option<WireAddress> {
        self.lock().find(gid)
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe { self.lock().send(header, payload) }
    }

    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        // SAFETY: as above.
        unsafe { self.lock().send_copy(header, payload) }
    }

    fn receive(&mut self) -> Option<Packet> {
        self.lock().receive()
    }

    fn retract(&mut self, scope: Retract) {
        self.lock().retract(scope);
    }
}

impl HostWire {
    pub(super) fn new(links: Links, faults: Option<Faults>, watch: Option<RequestWatch>) -> Self {
        if faults.is_none() && watch.is_none() {
            return Self(Way::Plain(Box::new(links)));
        }
        let before = Before { faults, watch };
        let links = SharedLinks(Arc::new(Mutex::new(links)));
        Self(Way::Faulty {
            wire: Box::new(FaultyWire::new(links.clone(), before)),
            links,
        })
    }

    pub(super) fn with_links<R>(&mut self, f: impl FnOnce(&mut Links) -> R) -> R {
        match &mut self.0 {
            Way::Plain(links) => f(links),
            Way::Faulty { links, .. } => f(&mut links.lock()),
        }
    }
}

// SAFETY: forwards every call to a wire that keeps the contract.
unsafe impl Wire for HostWire {
    fn limits(&self, to: WireAddress) -> Limits {
        match &self.0 {
            Way::Plain(links) => links.limits(to),
            Way::Faulty { wire, .. } => wire.limits(to),
        }
    }

    fn find(&self, gid: Gid) -> Option<WireAddress> {
        match &self.0 {
            Way::Plain(links) => links.find(gid),
            Way::Faulty { wire, .. } => wire.find(gid),
        }
    }

    unsafe fn send(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        // SAFETY: the caller's promise is passed on unchanged.
        unsafe {
            match &mut self.0 {
                Way::Plain(links) => links.send(header, payload),
                Way::Faulty { wire, .. } => wire.send(header, payload),
            }
        }
    }

    unsafe fn send_copy(&mut self, header: &Header, payload: &[Range]) -> Result<(), Busy> {
        // SAFETY: as above.
        unsafe {
            match &mut self.0 {
                Way::Plain(links) => links.send_copy(header, payload),
                Way::Faulty { wire, .. } => wire.send_copy(header, payload),
            }
        }
    }

    fn receive(&mut self) -> Option<Packet> {
        match &mut self.0 {
            Way::Plain(links) => links.receive(),
            Way::Faulty { wire, .. } => wire.receive(),
        }
    }

    fn retract(&mut self, scope: Retract) {
        match &mut self.0 {
            Way::Plain(links) => links.retract(scope),
            Way::Faulty { wire, .. } => wire.retract(scope),
        }
    }
}
