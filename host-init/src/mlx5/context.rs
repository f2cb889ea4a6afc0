//! An open card, and the objects that commands make.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use mlx5_wqe::prm::{
    AtomicCapabilities, CapabilityQuery, Command, Done, HcaCapabilities, HcaCapabilities2,
    PrmError, QueryAtomicCap, QueryHcaCap, QueryHcaCap2, QueryRoceCap, Record, RoceCapabilities,
};

use super::bindings::{self, Functions, IbvContext, IbvDevice, values};
use super::error::{Mlx5Error, remedy};

/// A device opened with DEVX; it closes with the last of its objects.
#[derive(Debug)]
pub(super) struct Context {
    pub functions: Functions,
    raw: NonNull<IbvContext>,
    name: String,
}

// SAFETY: libibverbs and libmlx5 lock what their calls change.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A failing call's error, whose number is in errno.
pub(super) fn last() -> io::Error {
    io::Error::last_os_error()
}

/// The result of a call that returns 0, or an error number, or -1 with it in errno.
pub(super) fn status(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(last()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// Names the step that the system refused.
pub(super) fn system(step: &'static str) -> impl Fn(io::Error) -> Mlx5Error {
    move |source| Mlx5Error::System {
        step,
        remedy: remedy(&source),
        source,
    }
}

impl Context {
    /// Opens the device of this name.
    pub fn open(name: &str) -> Result<Arc<Self>, Mlx5Error> {
        let functions = Functions::load()?;
        let mut count = 0;
        // SAFETY: the count is ours.
        let list = unsafe { (functions.ibv_get_device_list)(&raw mut count) };
        let Some(list) = NonNull::new(list) else {
            let error = last();
            // A kernel without RDMA, or none of its modules loaded.
            if error.raw_os_error() == Some(libc::ENOSYS) {
                let (name, found) = (name.into(), Vec::new());
                return Err(Mlx5Error::NoDevice { name, found });
            }
            return Err(system("list the RDMA devices")(error));
        };
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has that many devices, and lives until it is freed below.
        let devices = unsafe { std::slice::from_raw_parts(list.as_ptr(), count) };
        let opened = Self::find(&functions, devices, name).map(|raw| (raw, name.to_owned()));
        // SAFETY: an open device outlives the list.
        unsafe { (functions.ibv_free_device_list)(list.as_ptr()) };
        let (raw, name) = opened?;
        Ok(Arc::new(Self {
            functions,
            raw,
            name,
        }))
    }

    fn find(
        functions: &Functions,
        devices: &[*mut IbvDevice],
        name: &str,
    ) -> Result<NonNull<IbvContext>, Mlx5Error> {
        // SAFETY: devices of the list live, and with them their names.
        let name_of = |device: &*mut IbvDevice| unsafe {
            let name = CStr::from_ptr((functions.ibv_get_device_name)(*device));
            name.to_string_lossy().into_owned()
        };
        let Some(device) = devices.iter().find(|device| name_of(device) == name) else {
            return Err(Mlx5Error::NoDevice {
                name: name.into(),
                found: devices.iter().map(name_of).collect(),
            });
        };
        // SAFETY: as above.
        if !unsafe { (functions.mlx5dv_is_supported)(*device) } {
            return Err(Mlx5Error::NotMlx5 { name: name.into() });
        }
        let mut attributes = bindings::ContextAttributes {
            flags: values::CONTEXT_DEVX,
            comp_mask: 0,
        };
        // SAFETY: as above; the attributes are only read.
        let raw = unsafe { (functions.mlx5dv_open_device)(*device, &raw mut attributes) };
        NonNull::new(raw).ok_or_else(|| system("open the device with DEVX")(last()))
    }

    /// For the libraries.
    pub fn raw(&self) -> *mut IbvContext {
        self.raw.as_ptr()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the card can do.
    pub fn capabilities(&self) -> Result<HcaCapabilities, Mlx5Error> {
        let query = QueryHcaCap {
            op_mod: CapabilityQuery::GENERAL_CURRENT,
            ..QueryHcaCap::default()
        };
        Ok(self.ask(&query)?.cmd_hca_cap)
    }

    /// What else it can do; only of a card whose [`capabilities`](Self::capabilities) say that there is more.
    pub fn more_capabilities(&self) -> Result<HcaCapabilities2, Mlx5Error> {
        let query = QueryHcaCap2 {
            op_mod: CapabilityQuery::GENERAL_2_CURRENT,
        };
        Ok(self.ask(&query)?.cmd_hca_cap_2)
    }

    /// What it can do with RoCE; only of a card whose [`capabilities`](Self::capabilities) say that it has RoCE.
    pub fn roce_capabilities(&self) -> Result<RoceCapabilities, Mlx5Error> {
        let query = QueryRoceCap {
            op_mod: CapabilityQuery::ROCE_CURRENT,
        };
        Ok(self.ask(&query)?.roce_cap)
    }

    /// What it can do with atomics; only of a card whose [`capabilities`](Self::capabilities) say that it has any.
    pub fn atomic_capabilities(&self) -> Result<AtomicCapabilities, Mlx5Error> {
        let query = QueryAtomicCap {
            op_mod: CapabilityQuery::ATOMIC_CURRENT,
        };
        Ok(self.ask(&query)?.atomic_caps)
    }

    /// Gives a command that asks about the card.
    fn ask<C: Command>(&self, query: &C) -> Result<C::Answer, Mlx5Error> {
        command("ask what the card can do", query, |input, output| {
            // SAFETY: `command` gives bytes to read and bytes to write.
            status(unsafe {
                (self.functions.mlx5dv_devx_general_cmd)(
                    self.raw(),
                    input.as_ptr().cast(),
                    input.len(),
                    output.as_mut_ptr().cast(),
                    output.len(),
                )
            })
        })
    }

    /// A port, counted from 1.
    pub fn port(&self, port: u8) -> io::Result<bindings::PortAttributes> {
        // SAFETY: the structure is numbers, of which 0 is one.
        let mut attributes: bindings::PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the function fills the structure.
        status(unsafe { (self.functions.ibv_query_port)(self.raw(), port, &raw mut attributes) })?;
        Ok(attributes)
    }

    /// An entry of a port's table of GIDs; none if it is empty.
    pub fn gid(&self, port: u8, index: u32) -> Option<bindings::GidEntry> {
        // SAFETY: the structure is numbers, of which 0 is one.
        let mut entry: bindings::GidEntry = unsafe { std::mem::zeroed() };
        let bytes = size_of::<bindings::GidEntry>();
        // SAFETY: the function fills the structure, whose size it is told.
        let found = status(unsafe {
            let query = self.functions.ibv_query_gid_ex;
            query(self.raw(), port.into(), index, &raw mut entry, 0, bytes)
        });
        (found.is_ok() && entry.gid != [0, 0]).then_some(entry)
    }

    /// An entry of a port's table of partition keys; none if it is empty.
    pub fn partition_key(&self, port: u8, index: u16) -> Option<u16> {
        let mut key = 0u16;
        // SAFETY: the function sets the number.
        let found = status(unsafe {
            (self.functions.ibv_query_pkey)(self.raw(), port, index.into(), &raw mut key)
        });
        (found.is_ok() && key != 0).then(|| u16::from_be(key))
    }

    /// The event queue of completion vector 0.
    pub fn event_queue(&self) -> Result<u32, Mlx5Error> {
        let mut number = 0;
        // SAFETY: the function sets the number.
        let asked = status(unsafe {
            (self.functions.mlx5dv_devx_query_eqn)(self.raw(), 0, &raw mut number)
        });
        asked.map_err(system("ask for the event queue"))?;
        Ok(number)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: each object of the device keeps it, so that none is left.
        let closed = status(unsafe { (self.functions.ibv_close_device)(self.raw()) });
        if let Err(error) = closed {
            tracing::error!(device = self.name, %error, "the device stays open");
        }
    }
}

/// Writes a command, lets `give` carry it, and reads the answer.
fn command<C: Command>(
    step: &'static str,
    command: &C,
    give: impl FnOnce(&[u8], &mut [u8]) -> io::Result<()>,
) -> Result<C::Answer, Mlx5Error> {
    let unfit = |source| Mlx5Error::Command { step, source };
    let mut input = vec![0; C::BYTES];
    command.write(&mut input).map_err(unfit)?;
    let mut output = vec![0; <C::Answer as Record>::BYTES];
    let given = give(&input, &mut output);
    // Where the card refused, the call fails, and the answer says why.
    if let Err(PrmError::Refused(refusal)) = Done::read(&output) {
        return Err(Mlx5Error::Refused { step, refusal });
    }
    given.map_err(system(step))?;
    C::Answer::read(&output).map_err(unfit)
}

/// An object that a command has made. It has to be [destroyed](Self::destroy); dropped, it stays.
#[derive(Debug)]
pub(super) struct Object {
    context: Arc<Context>,
    raw: NonNull<bindings::DevxObject>,
}

// SAFETY: the object is not tied to a thread; libmlx5 changes nothing in it.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Gives a command that makes an object.
    ///
    /// # Safety
    /// Memory that the command names stays until the object is destroyed.
    pub unsafe fn create<C: Command>(
        context: &Arc<Context>,
        step: &'static str,
        create: &C,
    ) -> Result<(Self, C::Answer), Mlx5Error> {
        let mut raw = null_mut();
        let answer = command(step, create, |input, output| {
            // SAFETY: `command` gives bytes to read and bytes to write.
            raw = unsafe {
                (context.functions.mlx5dv_devx_obj_create)(
                    context.raw(),
                    input.as_ptr().cast(),
                    input.len(),
                    output.as_mut_ptr().cast(),
                    output.len(),
                )
            };
            match raw.is_null() {
                true => Err(last()),
                false => Ok(()),
            }
        })?;
        let raw = NonNull::new(raw).expect("a command that made nothing has failed");
        let context = context.clone();
        Ok((Self { context, raw }, answer))
    }

    /// For the libraries.
    pub fn raw(&self) -> *mut bindings::DevxObject {
        self.raw.as_ptr()
    }

    /// Gives a command that changes the object.
    pub fn modify<C: Command>(
        &self,
        step: &'static str,
        modify: &C,
    ) -> Result<C::Answer, Mlx5Error> {
        let function = self.context.functions.mlx5dv_devx_obj_modify;
        self.talk(step, modify, function)
    }

    /// Gives a command that asks about the object.
    pub fn query<C: Command>(&self, step: &'static str, query: &C) -> Result<C::Answer, Mlx5Error> {
        let function = self.context.functions.mlx5dv_devx_obj_query;
        self.talk(step, query, function)
    }

    fn talk<C: Command>(
        &self,
        step: &'static str,
        talk: &C,
        function: unsafe extern "C" fn(
            *mut bindings::DevxObject,
            *const c_void,
            usize,
            *mut c_void,
            usize,
        ) -> c_int,
    ) -> Result<C::Answer, Mlx5Error> {
        command(step, talk, |input, output| {
            // SAFETY: the object lives; `command` gives bytes to read and bytes to write.
            status(unsafe {
                function(
                    self.raw.as_ptr(),
                    input.as_ptr().cast(),
                    input.len(),
                    output.as_mut_ptr().cast(),
                    output.len(),
                )
            })
        })
    }

    /// Destroys it. When this succeeds, the card uses its memory no longer.
    pub fn destroy(self, step: &'static str) -> Result<(), Mlx5Error> {
        // SAFETY: the object lives, and ends here.
        let destroyed =
            status(unsafe { (self.context.functions.mlx5dv_devx_obj_destroy)(self.raw.as_ptr()) });
        destroyed.map_err(system(step))
    }
}
