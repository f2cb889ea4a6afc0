//! What is called of libibverbs and libmlx5: their structures, as far as they are looked into, and their functions,
//! which are looked up at run time.
//!
//! Source: infiniband/verbs.h and infiniband/mlx5dv.h of rdma-core 44. `warpbell-proofs` compares the structures and
//! numbers with them.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// Declares types that are only pointed to.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

opaque! {
    /// `struct ibv_device`.
    IbvDevice;
    /// `struct ibv_context`.
    IbvContext;
    /// `struct ibv_pd`.
    IbvPd;
    /// `struct ibv_ah`.
    IbvAh;
    /// `struct mlx5dv_devx_obj`.
    DevxObject;
}

/// Declares structures that are looked into.
macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub struct $name { $(pub $field: $type,)* }
    )*};
}

structures! {
    /// `struct ibv_port_attr` up to `flags`, which is all that the function of the library fills.
    PortAttributes {
        state: u32,
        max_mtu: u32,
        active_mtu: u32,
        gid_tbl_len: c_int,
        port_cap_flags: u32,
        max_msg_sz: u32,
        bad_pkey_cntr: u32,
        qkey_viol_cntr: u32,
        pkey_tbl_len: u16,
        lid: u16,
        sm_lid: u16,
        lmc: u8,
        max_vl_num: u8,
        sm_sl: u8,
        subnet_timeout: u8,
        init_type_reply: u8,
        active_width: u8,
        active_speed: u8,
        phys_state: u8,
        link_layer: u8,
        flags: u8,
    }

    /// `struct ibv_gid_entry`, whose GID is aligned to 8.
    GidEntry {
        gid: [u64; 2],
        gid_index: u32,
        port_num: u32,
        gid_type: u32,
        ndev_ifindex: u32,
    }

    /// The head of `struct ibv_mr`.
    MemoryRegion {
        context: *mut IbvContext,
        pd: *mut IbvPd,
        addr: *mut c_void,
        length: usize,
        handle: u32,
        lkey: u32,
        rkey: u32,
    }

    /// `struct ibv_global_route`, whose GID is aligned to 8.
    GlobalRoute {
        dgid: [u64; 2],
        flow_label: u32,
        sgid_index: u8,
        hop_limit: u8,
        traffic_class: u8,
    }

    /// `struct ibv_ah_attr`.
    AddressAttributes {
        grh: GlobalRoute,
        dlid: u16,
        sl: u8,
        src_path_bits: u8,
        static_rate: u8,
        is_global: u8,
        port_num: u8,
    }

    /// `struct mlx5dv_context_attr`.
    ContextAttributes {
        flags: u32,
        comp_mask: u64,
    }

    /// `struct mlx5dv_pd`.
    Domain {
        pdn: u32,
        comp_mask: u64,
    }

    /// `struct mlx5dv_ah`.
    AddressHandle {
        av: *const mlx5_wqe::AddressVector,
        comp_mask: u64,
    }

    /// A pair of `struct mlx5dv_obj`.
    InOut {
        input: *mut c_void,
        output: *mut c_void,
    }

    /// `struct mlx5dv_obj`.
    Objects {
        qp: InOut,
        cq: InOut,
        srq: InOut,
        rwq: InOut,
        dm: InOut,
        ah: InOut,
        pd: InOut,
    }

    /// `struct mlx5dv_devx_umem`.
    Umem {
        umem_id: u32,
    }

    /// `struct mlx5dv_devx_umem_in`.
    UmemAttributes {
        addr: *mut c_void,
        size: usize,
        access: u32,
        pgsz_bitmap: u64,
        comp_mask: u64,
        dmabuf_fd: c_int,
    }

    /// `struct mlx5dv_devx_event_channel`.
    EventChannel {
        fd: c_int,
    }

    /// `struct mlx5dv_devx_uar`.
    Uar {
        reg_addr: *mut c_void,
        base_addr: *mut c_void,
        page_id: u32,
        mmap_off: i64,
        comp_mask: u64,
    }
}

impl Objects {
    /// No object.
    pub const NONE: Self = {
        const NONE: InOut = InOut {
            input: null_mut(),
            output: null_mut(),
        };
        Self {
            qp: NONE,
            cq: NONE,
            srq: NONE,
            rwq: NONE,
            dm: NONE,
            ah: NONE,
            pd: NONE,
        }
    };
}

/// Numbers of the headers.
pub mod values {
    use std::ffi::c_int;

    /// `IBV_PORT_ACTIVE`.
    pub const PORT_ACTIVE: u32 = 4;
    /// `IBV_LINK_LAYER_INFINIBAND`.
    pub const LINK_INFINIBAND: u8 = 1;
    /// `IBV_LINK_LAYER_ETHERNET`.
    pub const LINK_ETHERNET: u8 = 2;
    /// `IBV_QPF_GRH_REQUIRED`.
    pub const GRH_REQUIRED: u8 = 1;
    /// `IBV_GID_TYPE_IB`.
    pub const GID_INFINIBAND: u32 = 0;
    /// `IBV_GID_TYPE_ROCE_V1`.
    pub const GID_ROCE_V1: u32 = 1;
    /// `IBV_GID_TYPE_ROCE_V2`.
    pub const GID_ROCE_V2: u32 = 2;
    /// `IBV_ACCESS_LOCAL_WRITE`.
    pub const LOCAL_WRITE: u32 = 1;
    /// `MLX5DV_CONTEXT_FLAGS_DEVX`.
    pub const CONTEXT_DEVX: u32 = 1;
    /// `MLX5DV_OBJ_AH`.
    pub const OBJECT_AH: u64 = 1 << 5;
    /// `MLX5DV_OBJ_PD`.
    pub const OBJECT_PD: u64 = 1 << 6;
    /// `MLX5DV_UMEM_MASK_DMABUF`.
    pub const UMEM_DMABUF: u64 = 1;
    /// `MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA`: an event is its cookie.
    pub const EVENT_CHANNEL_WITHOUT_DATA: c_int = 1;
    /// `MLX5DV_UAR_ALLOC_TYPE_BF`.
    pub const UAR_BLUEFLAME: u32 = 0;
    /// `MLX5DV_UAR_ALLOC_TYPE_NC`.
    pub const UAR_NON_CACHED: u32 = 1;
}

/// `MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED`, since rdma-core 45; an older one refuses it.
pub const UAR_DEDICATED: u32 = 1 << 31;

/// libibverbs' name.
pub const LIBIBVERBS: &str = "libibverbs.so.1";
/// libmlx5's name.
pub const LIBMLX5: &str = "libmlx5.so.1";

/// Why the functions cannot be called.
#[derive(Debug)]
pub enum LoadError {
    /// A library is not there.
    Library {
        /// Which one.
        name: &'static str,
        /// What the loader says.
        source: libloading::Error,
    },
    /// A library lacks a function.
    Function {
        /// Which library.
        library: &'static str,
        /// Which function.
        name: &'static str,
    },
}

/// Declares the functions, each a field that holds its address.
macro_rules! functions {
    ($($library:ident {
        $($(#[$doc:meta])* $name:ident $(= $symbol:literal)?: fn($($argument:ty),*) $(-> $result:ty)?;)*
    })*) => {
        /// The functions, whose libraries stay loaded.
        ///
        /// # Safety
        /// Each function wants what its manual page says.
        #[derive(Debug)]
        pub struct Functions {
            $($($(#[$doc])* pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
            _libraries: [Library; 2],
        }

        impl Functions {
            /// Loads the libraries and looks the functions up.
            ///
            /// # Errors
            /// Names the library or the function that is missing.
            pub fn load() -> Result<Self, LoadError> {
                let libraries = [open(LIBIBVERBS)?, open(LIBMLX5)?];
                let [verbs, mlx5] = &libraries;
                Ok(Self {
                    $($($name: {
                        let library = functions!(@library $library verbs mlx5);
                        let symbol = functions!(@symbol $name $($symbol)?);
                        type Function = unsafe extern "C" fn($($argument),*) $(-> $result)?;
                        // SAFETY: this is the type of the function of that name.
                        let found = unsafe { library.0.get::<Function>(symbol.as_bytes()) };
                        match found {
                            Ok(found) => *found,
                            Err(_) => return Err(LoadError::Function { library: library.1, name: symbol }),
                        }
                    },)*)*
                    _libraries: libraries.map(|library| library.0),
                })
            }
        }
    };
    (@library verbs $verbs:ident $mlx5:ident) => { $verbs };
    (@library mlx5 $verbs:ident $mlx5:ident) => { $mlx5 };
    (@symbol $name:ident) => { stringify!($name) };
    (@symbol $name:ident $symbol:literal) => { $symbol };
}

fn open(name: &'static str) -> Result<(Library, &'static str), LoadError> {
    // SAFETY: the initialisers of these libraries are made to be run whenever they are loaded.
    let library = unsafe { Library::new(name) };
    let library = library.map_err(|source| LoadError::Library { name, source })?;
    Ok((library, name))
}

functions! {
    verbs {
        /// All devices, in a list that ends with null.
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut IbvDevice;
        /// Frees that list.
        ibv_free_device_list: fn(*mut *mut IbvDevice);
        /// A device's name, which lives as long as the device.
        ibv_get_device_name: fn(*mut IbvDevice) -> *const c_char;
        /// Closes a device.
        ibv_close_device: fn(*mut IbvContext) -> c_int;
        /// Tells of a port.
        ibv_query_port: fn(*mut IbvContext, u8, *mut PortAttributes) -> c_int;
        /// Tells of one GID; the last number is the entry's size.
        ibv_query_gid_ex = "_ibv_query_gid_ex": fn(*mut IbvContext, u32, u32, *mut GidEntry, u32, usize) -> c_int;
        /// Tells the partition key at an index, big-endian.
        ibv_query_pkey: fn(*mut IbvContext, u8, c_int, *mut u16) -> c_int;
        /// Makes a protection domain.
        ibv_alloc_pd: fn(*mut IbvContext) -> *mut IbvPd;
        /// Frees it.
        ibv_dealloc_pd: fn(*mut IbvPd) -> c_int;
        /// Registers memory.
        ibv_reg_mr: fn(*mut IbvPd, *mut c_void, usize, c_int) -> *mut MemoryRegion;
        /// Registers memory of another device by a dmabuf: offset, length, address for work requests, file, access.
        ibv_reg_dmabuf_mr: fn(*mut IbvPd, u64, usize, u64, c_int, c_int) -> *mut MemoryRegion;
        /// Deregisters memory.
        ibv_dereg_mr: fn(*mut MemoryRegion) -> c_int;
        /// Makes an address handle, which resolves a path.
        ibv_create_ah: fn(*mut IbvPd, *mut AddressAttributes) -> *mut IbvAh;
        /// Frees it.
        ibv_destroy_ah: fn(*mut IbvAh) -> c_int;
    }
    mlx5 {
        /// Whether a device is one of libmlx5's.
        mlx5dv_is_supported: fn(*mut IbvDevice) -> bool;
        /// Opens a device.
        mlx5dv_open_device: fn(*mut IbvDevice, *mut ContextAttributes) -> *mut IbvContext;
        /// Looks into objects of verbs.
        mlx5dv_init_obj: fn(*mut Objects, u64) -> c_int;
        /// Gives a command that makes nothing: command, its bytes, answer, its bytes.
        mlx5dv_devx_general_cmd: fn(*mut IbvContext, *const c_void, usize, *mut c_void, usize) -> c_int;
        /// Gives a command that makes an object.
        mlx5dv_devx_obj_create: fn(*mut IbvContext, *const c_void, usize, *mut c_void, usize) -> *mut DevxObject;
        /// Gives a command that asks about an object.
        mlx5dv_devx_obj_query: fn(*mut DevxObject, *const c_void, usize, *mut c_void, usize) -> c_int;
        /// Gives a command that changes an object.
        mlx5dv_devx_obj_modify: fn(*mut DevxObject, *const c_void, usize, *mut c_void, usize) -> c_int;
        /// Destroys an object.
        mlx5dv_devx_obj_destroy: fn(*mut DevxObject) -> c_int;
        /// Registers memory for queues, of another device too.
        mlx5dv_devx_umem_reg_ex: fn(*mut IbvContext, *mut UmemAttributes) -> *mut Umem;
        /// Deregisters it.
        mlx5dv_devx_umem_dereg: fn(*mut Umem) -> c_int;
        /// Allocates a UAR.
        mlx5dv_devx_alloc_uar: fn(*mut IbvContext, u32) -> *mut Uar;
        /// Frees it.
        mlx5dv_devx_free_uar: fn(*mut Uar);
        /// Makes a channel of events.
        mlx5dv_devx_create_event_channel: fn(*mut IbvContext, c_int) -> *mut EventChannel;
        /// Frees it.
        mlx5dv_devx_destroy_event_channel: fn(*mut EventChannel);
        /// Has events of an object told: how many bytes of numbers, the numbers, the cookie that tells them.
        mlx5dv_devx_subscribe_devx_event: fn(*mut EventChannel, *mut DevxObject, u16, *mut u16, u64) -> c_int;
        /// Reads an event, which begins with its cookie, of at most so many bytes; how many it has.
        mlx5dv_devx_get_event: fn(*mut EventChannel, *mut c_void, usize) -> isize;
        /// The event queue of a completion vector.
        mlx5dv_devx_query_eqn: fn(*mut IbvContext, u32, *mut u32) -> c_int;
    }
}
