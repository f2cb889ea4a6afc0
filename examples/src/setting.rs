//! Where an example runs: what each begins with, and what each document tells of that.

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::origin::Origin;
use crate::world::{Machine, World};
use crate::{Error, interrupt};

/// Where an example runs. In a document these are the fields `origin`, `nic` and `kernels`.
#[derive(Debug)]
pub struct Setting {
    /// The machine and the time.
    pub origin: Origin,
    /// Kernels and NIC.
    pub world: World,
}

impl Setting {
    /// Listens for Ctrl-C from now on, and opens what the kernels run on.
    ///
    /// # Errors
    /// As [`Machine::open`].
    pub fn open(machine: &Machine) -> Result<Self, Error> {
        interrupt::listen();
        Ok(Self {
            origin: Origin::here(),
            world: machine.open()?,
        })
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Setting", 3)?;
        fields.serialize_field("origin", &self.origin)?;
        fields.serialize_field("nic", &self.world.nic())?;
        fields.serialize_field("kernels", &self.world.ran())?;
        fields.end()
    }
}
