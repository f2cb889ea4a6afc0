//! Where an example runs: what each begins with, and what each document tells of that.

use crate::run::interrupt;
use crate::run::machine::Machine;
use crate::run::place::Ran;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use warpbell_host_init::Node;
use warpbell_ptx::{KERNELS, Module};

use crate::Error;
use crate::origin::Origin;

/// Where an example runs. In a document these are the fields `origin`, `nic` and `kernels`.
#[derive(Debug)]
pub struct Setting {
    /// The machine and the time.
    pub origin: Origin,
    /// Kernels and NIC.
    pub node: Node,
}

impl Setting {
    /// Listens for Ctrl-C from now on, and opens what the kernels run on.
    ///
    /// # Errors
    /// As [`Machine::open`].
    pub fn open(machine: &Machine) -> Result<Self, Error> {
        let (setting, _) = Self::open_with(machine, &KERNELS, &[])?;
        Ok(setting)
    }

    /// The same with kernels of this module, on each of these GPUs, if there are any. The setting is that of the first
    /// node; all nodes come beside it.
    ///
    /// # Errors
    /// As [`Machine::open_with`].
    pub fn open_with(
        machine: &Machine,
        kernels: &'static Module,
        gpus: &[u32],
    ) -> Result<(Self, Vec<Node>), Error> {
        interrupt::listen();
        let nodes = machine.open_with(kernels, gpus)?;
        let setting = Self {
            origin: Origin::here(),
            node: nodes[0].clone(),
        };
        Ok((setting, nodes))
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Setting", 3)?;
        fields.serialize_field("origin", &self.origin)?;
        fields.serialize_field("nic", &self.node.nic_name())?;
        fields.serialize_field("kernels", &Ran::on(&self.node))?;
        fields.end()
    }
}
