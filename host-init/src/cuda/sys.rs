//! The driver's functions that this crate calls, by the names and with the numbers of NVIDIA's `cuda.h`
//! (CUDA 12.8 and later), found when the library is loaded.
//!
//! The driver's answers and attributes are plain numbers here, so that one that a newer driver adds is a value as
//! any other.
#![allow(
    non_camel_case_types,
    non_snake_case,
    clippy::too_many_arguments,
    reason = "names and parameters are the driver's"
)]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::sync::OnceLock;

use libloading::Library;

use super::GpuError;

/// What a call answers: any number may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct CUresult(pub c_uint);

impl CUresult {
    pub const CUDA_SUCCESS: Self = Self(0);
    pub const CUDA_ERROR_STUB_LIBRARY: Self = Self(34);
    pub const CUDA_ERROR_NO_DEVICE: Self = Self(100);
    pub const CUDA_ERROR_INVALID_DEVICE: Self = Self(101);
    pub const CUDA_ERROR_NOT_READY: Self = Self(600);
    pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: Self = Self(704);
    pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    pub const CUDA_ERROR_NOT_SUPPORTED: Self = Self(801);
}

pub const CU_ACCESS_PROPERTY_NORMAL: c_uint = 0;
pub const CU_ACCESS_PROPERTY_PERSISTING: c_uint = 2;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_uint = 16;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_uint = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_uint = 76;
pub const CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: c_uint = 108;
pub const CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: c_uint = 109;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: c_uint = 118;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: c_uint = 122;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: c_uint = 123;
pub const CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: c_uint = 3;
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: c_uint = 0;
pub const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: c_uint = 3;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER: u32 = 100;
pub const CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES: u32 = 200;
pub const CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH: c_ulonglong = 4;
pub const CU_JIT_MAX_REGISTERS: c_uint = 0;
pub const CU_JIT_ERROR_LOG_BUFFER: c_uint = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: c_uint = 6;
pub const CU_JIT_INPUT_PTX: c_uint = 1;
pub const CU_JIT_INPUT_LIBRARY: c_uint = 4;
pub const CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: c_uint = 1;
pub const CU_LIMIT_PERSISTING_L2_CACHE_SIZE: c_uint = 6;
pub const CU_LIMIT_STACK_SIZE: c_uint = 0;
pub const CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD: c_uint = 1;
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
pub const CU_MEMHOSTREGISTER_PORTABLE: c_uint = 1;
pub const CU_MEMHOSTREGISTER_DEVICEMAP: c_uint = 2;
pub const CU_MEMHOSTREGISTER_IOMEMORY: c_uint = 4;
pub const CU_MEMORYTYPE_DEVICE: u32 = 2;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: c_uint = 2;
pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: c_uint = 6;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: c_uint = 9;
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub const CU_STREAM_WAIT_VALUE_AND: c_uint = 2;
pub const CU_STREAM_WAIT_VALUE_NOR: c_uint = 3;
pub const CU_STREAM_WRITE_VALUE_DEFAULT: c_uint = 0;

/// A GPU's number for the driver.
pub type CUdevice = c_int;
/// An address in a GPU's memory.
pub type CUdeviceptr = u64;

/// The driver's objects: pointers to what only it knows.
macro_rules! objects {
    ($($name:ident)*) => {
        pub mod opaque {
            $(#[derive(Debug)] pub struct $name([u8; 0]);)*
        }
        $(pub type $name = *mut opaque::$name;)*
    };
}

objects! {
    CUcontext CUevent CUfunction CUgraph CUgraphExec CUgraphNode CUkernel CUlinkState CUmodule CUstream
}

/// A kernel in a graph (`CUDA_KERNEL_NODE_PARAMS_v2`).
#[repr(C)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);

/// How accesses to a range of memory use the L2 cache.
#[repr(C)]
pub struct CUaccessPolicyWindow {
    pub base_ptr: CUdeviceptr,
    pub num_bytes: usize,
    pub hitRatio: f32,
    pub hitProp: c_uint,
    pub missProp: c_uint,
}

/// An attribute of a launch, which is a window: a union of 64 bytes in `cuda.h`.
#[repr(C)]
pub struct CUlaunchAttribute {
    pub id: c_uint,
    pub pad: c_uint,
    pub window: CUaccessPolicyWindow,
    pub rest: [u64; 4],
}

/// A grid and its attributes.
#[repr(C)]
pub struct CUlaunchConfig {
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub hStream: CUstream,
    pub attrs: *const CUlaunchAttribute,
    pub numAttrs: c_uint,
}

const _: () = {
    assert!(size_of::<CUaccessPolicyWindow>() == 32);
    assert!(size_of::<CUlaunchAttribute>() == 72);
    assert!(size_of::<CUlaunchConfig>() == 56);
};

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// Loads the driver's library, for good, and finds in it all that this crate calls.
///
/// # Errors
/// [`GpuError::NoDriver`], [`GpuError::OldDriver`].
pub fn load() -> Result<(), GpuError> {
    if DRIVER.get().is_none() {
        // SAFETY: loading the driver's library runs its initialisers, and they are made for that.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|_| GpuError::NoDriver)?;
        let driver = Driver::find(&library)?;
        // Another thread may have been quicker; its functions are the same.
        let _ = DRIVER.set(driver);
        // The functions stay for good, so that the library must.
        std::mem::forget(library);
    }
    Ok(())
}

/// The functions; an open [`Gpu`](super::Gpu) has loaded them.
fn driver() -> &'static Driver {
    DRIVER.get().expect("a GPU is open")
}

macro_rules! functions {
    ($($name:ident($($parameter:ident: $type:ty),*);)*) => {
        struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> CUresult,)*
        }

        impl Driver {
            fn find(library: &Library) -> Result<Self, GpuError> {
                let lacks = |function| move |_| GpuError::OldDriver { function };
                Ok(Self {
                    $(
                        // SAFETY: the function of this name has this type in `cuda.h`, but for numbers in the
                        // place of C's enums, which cross as such.
                        $name: *unsafe { library.get(stringify!($name)) }.map_err(lacks(stringify!($name)))?,
                    )*
                })
            }
        }

        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            /// As the driver has it.
            pub unsafe fn $name($($parameter: $type),*) -> CUresult {
                // SAFETY: the caller's promise.
                unsafe { (driver().$name)($($parameter),*) }
            }
        )*
    };
}

functions! {
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    cuCtxGetLimit(value: *mut usize, limit: c_uint);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxSetLimit(limit: c_uint, value: usize);
    cuDeviceCanAccessPeer(able: *mut c_int, from: CUdevice, to: CUdevice);
    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetAttribute(value: *mut c_int, attribute: c_uint, device: CUdevice);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, from: CUdevice, to: CUdevice);
    cuDeviceGetPCIBusId(address: *mut c_char, length: c_int, device: CUdevice);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDriverGetVersion(version: *mut c_int);
    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventQuery(event: CUevent);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuFuncGetAttribute(value: *mut c_int, attribute: c_uint, function: CUfunction);
    cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    cuFuncLoad(function: CUfunction);
    cuGetErrorName(error: CUresult, text: *mut *const c_char);
    cuGetErrorString(error: CUresult, text: *mut *const c_char);
    cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize,
        parameters: *const CUDA_KERNEL_NODE_PARAMS
    );
    cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    cuGraphDestroy(graph: CUgraph);
    cuGraphExecDestroy(graph: CUgraphExec);
    cuGraphInstantiateWithFlags(ready: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong);
    cuGraphLaunch(graph: CUgraphExec, stream: CUstream);
    cuGraphUpload(graph: CUgraphExec, stream: CUstream);
    cuInit(flags: c_uint);
    cuLaunchKernel(
        function: CUfunction, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuLaunchKernelEx(
        config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
    cuLinkAddData_v2(
        state: CUlinkState, kind: c_uint, data: *mut c_void, size: usize, name: *const c_char, count: c_uint,
        options: *mut c_uint, values: *mut *mut c_void
    );
    cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, size: *mut usize);
    cuLinkCreate_v2(count: c_uint, options: *mut c_uint, values: *mut *mut c_void, state: *mut CUlinkState);
    cuLinkDestroy(state: CUlinkState);
    cuMemAlloc_v2(start: *mut CUdeviceptr, bytes: usize);
    cuMemGetAddressRange_v2(start: *mut CUdeviceptr, bytes: *mut usize, address: CUdeviceptr);
    cuMemGetHandleForAddressRange(
        handle: *mut c_void, start: CUdeviceptr, bytes: usize, kind: c_uint, flags: c_ulonglong
    );
    cuMemHostAlloc(start: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostGetDevicePointer_v2(address: *mut CUdeviceptr, start: *mut c_void, flags: c_uint);
    cuMemHostRegister_v2(start: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(start: *mut c_void);
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoDAsync_v2(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream);
    cuMemsetD8Async(start: CUdeviceptr, byte: c_uchar, bytes: usize, stream: CUstream);
    cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule);
    cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule);
    cuModuleGetGlobal_v2(start: *mut CUdeviceptr, bytes: *mut usize, module: CUmodule, name: *const c_char);
    cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void
    );
    cuPointerGetAttribute(value: *mut c_void, attribute: c_uint, address: CUdeviceptr);
    cuPointerSetAttribute(value: *const c_void, attribute: c_uint, address: CUdeviceptr);
    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint);
    cuStreamWriteValue32_v2(stream: CUstream, address: CUdeviceptr, value: c_uint, flags: c_uint);
    cuStreamWriteValue64_v2(stream: CUstream, address: CUdeviceptr, value: c_ulonglong, flags: c_uint);
}
