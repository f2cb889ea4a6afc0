//! What stands for GPUs without the feature `cuda`: types that have no values, so that nothing can be done with them.

#[cfg(feature = "soft")]
use std::convert::Infallible;
#[cfg(feature = "soft")]
use std::marker::PhantomData;
use std::path::Path;

use crate::choice::Branches;
use crate::launch::Watch;
use crate::stream::Step;
use crate::{Launch, StopWord};

/// A GPU. Without the feature `cuda` there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {}

/// What a GPU refuses. Without the feature `cuda` there is nothing to be refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {}

/// Kernels that are loaded on a GPU. Without the feature `cuda` there are none.
#[derive(Debug)]
pub enum Module {}

/// What lets a GPU's kernels launch others.
#[derive(Clone, Copy, Debug)]
pub enum DeviceRuntime {}

/// A kernel under way.
#[cfg(feature = "soft")]
pub struct Running<'m>(Infallible, PhantomData<&'m Module>);

/// Which memory.
pub(crate) enum Kind {
    Pinned,
    Gpu,
}

/// Who sees inbound writes in their order.
pub(crate) enum InboundOrder {}

/// A doorbell register that a GPU reaches.
#[derive(Debug)]
#[cfg(feature = "mlx5")]
pub(crate) enum MappedRegister {}

impl Gpu {
    pub(crate) fn ordinal(self) -> u32 {
        match self {}
    }

    pub(crate) fn name(self) -> &'static str {
        match self {}
    }

    pub(crate) fn enable_peer_access(self, _: Self) -> Result<(), GpuError> {
        match self {}
    }

    pub(crate) fn reaches(self, _: Self) -> bool {
        match self {}
    }

    pub(crate) fn inbound_order(self) -> InboundOrder {
        match self {}
    }

    pub(crate) fn check_persisting(self, _: usize) -> Result<(), GpuError> {
        match self {}
    }

    pub(crate) fn check_memory(self, _: u64, _: usize) -> Result<(), GpuError> {
        match self {}
    }

    pub(crate) fn allocate(self, _: Kind, _: usize) -> Result<u64, GpuError> {
        match self {}
    }

    pub(crate) fn free(self, _: Kind, _: u64, _: usize) {
        match self {}
    }

    pub(crate) unsafe fn clear(self, _: u64, _: usize) -> Result<(), GpuError> {
        match self {}
    }

    pub(crate) unsafe fn read(self, _: u64, _: &mut [u8]) -> Result<(), GpuError> {
        match self {}
    }

    pub(crate) unsafe fn write(self, _: u64, _: &[u8]) -> Result<(), GpuError> {
        match self {}
    }
}

#[cfg(feature = "mlx5")]
impl Gpu {
    pub(crate) fn dmabuf(self, _: u64, _: usize) -> Result<(std::os::fd::OwnedFd, u64), GpuError> {
        match self {}
    }

    pub(crate) fn synchronise_copies(self, _: u64) -> Result<(), GpuError> {
        match self {}
    }

    pub(crate) fn map_register(self, _: u64) -> Result<MappedRegister, GpuError> {
        match self {}
    }
}

#[cfg(feature = "mlx5")]
impl MappedRegister {
    pub(crate) fn address(&self) -> u64 {
        match *self {}
    }
}

impl InboundOrder {
    pub(crate) fn needs_flush(self) -> bool {
        match self {}
    }
}

impl DeviceRuntime {
    pub(crate) fn load(gpu: Gpu, _: Option<&Path>) -> Result<Self, GpuError> {
        match gpu {}
    }
}

impl Module {
    pub(crate) fn gpu(&self) -> Gpu {
        match *self {}
    }

    pub(crate) fn run(&self, _: &[Launch<'_>], _: &Watch<'_>) -> Result<(), GpuError> {
        match *self {}
    }

    pub(crate) fn run_each(
        launches: &[(&Self, Launch<'_>)],
        _: &Watch<'_>,
    ) -> Result<(), GpuError> {
        match launches.first() {
            None => Ok(()),
            Some((module, _)) => match **module {},
        }
    }

    pub(crate) fn run_in_order(&self, _: &[Step<'_>], _: &Watch<'_>) -> Result<(), GpuError> {
        match *self {}
    }

    pub(crate) fn run_repeating(
        &self,
        _: &[Launch<'_>],
        _: Option<&Branches<'_>>,
        _: &StopWord,
        _: &DeviceRuntime,
        _: &[Launch<'_>],
        _: &Watch<'_>,
    ) -> Result<(), crate::Error> {
        match *self {}
    }

    #[cfg(feature = "soft")]
    pub(crate) fn start(&self, _: &Launch<'static>) -> Result<Running<'_>, GpuError> {
        match *self {}
    }
}

#[cfg(feature = "soft")]
impl Running<'_> {
    pub(crate) fn has_ended(&mut self) -> Result<bool, GpuError> {
        match self.0 {}
    }
}
