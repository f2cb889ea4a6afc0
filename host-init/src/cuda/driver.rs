//! The driver's library: whether it is there, and its errors as values.

use std::ffi::CStr;

use cudarc::driver::sys::{self, CUresult};

use super::GpuError;

/// Every function that this crate calls. The bindings look each one up when it is first called, and panic
/// if it is missing: so all are looked up before.
const FUNCTIONS: [&str; 51] = [
    "cuCtxEnablePeerAccess",
    "cuCtxGetLimit",
    "cuCtxSetCurrent",
    "cuCtxSetLimit",
    "cuDeviceCanAccessPeer",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetP2PAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventQuery",
    "cuEventRecord",
    "cuFuncGetAttribute",
    "cuFuncGetName",
    "cuFuncGetParamInfo",
    "cuFuncLoad",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphAddKernelNode_v2",
    "cuGraphCreate",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchKernel",
    "cuLinkAddData_v2",
    "cuLinkComplete",
    "cuLinkCreate_v2",
    "cuLinkDestroy",
    "cuMemAlloc_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetHandleForAddressRange",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleEnumerateFunctions",
    "cuModuleGetFunctionCount",
    "cuModuleGetGlobal_v2",
    "cuModuleLoadDataEx",
    "cuPointerGetAttribute",
    "cuStreamCreate",
    "cuStreamSynchronize",
];

/// Whether all that this crate calls is there.
pub(super) fn present() -> Result<(), GpuError> {
    // SAFETY: loading the driver's library runs its initialisers, and they are made for that.
    if !unsafe { sys::is_culib_present() } {
        return Err(GpuError::NoDriver);
    }
    // SAFETY: as above; it is there, so this does not panic.
    let library = unsafe { sys::culib() };
    for function in FUNCTIONS {
        // SAFETY: the symbol is looked at and not called.
        if unsafe { library.get::<*const ()>(function.as_bytes()) }.is_err() {
            return Err(GpuError::OldDriver { function });
        }
    }
    Ok(())
}

/// The driver's result of `call` as a value.
pub(super) fn check(call: &'static str, result: CUresult) -> Result<(), GpuError> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        error => Err(GpuError::Driver {
            call,
            why: describe(error),
        }),
    }
}

/// The driver's name for an error, and what it says about it.
pub(super) fn describe(error: CUresult) -> String {
    type Describe = unsafe fn(CUresult, *mut *const std::ffi::c_char) -> CUresult;
    let say = |describe: Describe| {
        let mut text = std::ptr::null();
        // SAFETY: the driver sets the pointer to a string that it never frees, or leaves it alone.
        let found = unsafe { describe(error, &raw mut text) };
        // SAFETY: as above.
        let text = (found == CUresult::CUDA_SUCCESS && !text.is_null())
            .then(|| unsafe { CStr::from_ptr(text) });
        text.map(|text| text.to_string_lossy().into_owned())
    };
    let name = say(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", error as u32));
    match say(sys::cuGetErrorString) {
        Some(text) => format!("{name}, {text}"),
        None => name,
    }
}
