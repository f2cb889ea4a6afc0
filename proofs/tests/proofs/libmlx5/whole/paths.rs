//! The device's paths, by whatever function a program asks for them, and its file, by whatever way it is mapped.

use std::ffi::{CStr, c_int};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileTypeExt;
use std::ptr;

use crate::libmlx5::device::with_engine;

const DEVICE: &CStr = c"/dev/infiniband/uverbs0";
const NAME: &str = "/sys/class/infiniband_verbs/uverbs0/ibdev";

#[test]
fn are_there() {
    with_engine("libmlx5::whole::paths::are_there", || {
        let wanted = libc::R_OK | libc::W_OK;
        // SAFETY: the path is a C string.
        let asked: [c_int; 3] = unsafe {
            [
                libc::access(DEVICE.as_ptr(), wanted),
                libc::faccessat(libc::AT_FDCWD, DEVICE.as_ptr(), wanted, 0),
                libc::euidaccess(DEVICE.as_ptr(), wanted),
            ]
        };
        assert_eq!(asked, [0; 3]);
        let device = fs::metadata(DEVICE.to_str().unwrap()).unwrap();
        assert!(device.file_type().is_char_device());
        assert_eq!(fs::read_to_string(NAME).unwrap(), "mlx5_0\n");
        let file = File::open(DEVICE.to_str().unwrap()).unwrap();
        let duplicate = file.try_clone().unwrap();
        for file in [&file, &duplicate] {
            // SAFETY: the file is open, and the structure has room.
            let told = unsafe {
                let mut told = std::mem::zeroed::<libc::stat>();
                assert_eq!(libc::fstat(file.as_raw_fd(), &raw mut told), 0);
                told
            };
            assert_eq!(
                (told.st_mode & libc::S_IFMT, told.st_rdev),
                (libc::S_IFCHR, 0x103)
            );
        }
        let mut name = [0_u8; 7];
        // SAFETY: the strings are C strings, the buffer has room, and the file is closed.
        unsafe {
            let path = c"/sys/class/infiniband_verbs/uverbs0/ibdev";
            let file = libc::fopen(path.as_ptr(), c"r".as_ptr());
            assert!(!file.is_null());
            assert_eq!(libc::fread(name.as_mut_ptr().cast(), 1, 7, file), 7);
            libc::fclose(file);
        }
        assert_eq!(&name, b"mlx5_0\n");
        let names = |folder| {
            let entries = fs::read_dir(folder).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name())
                .collect::<Vec<_>>()
        };
        assert_eq!(names("/sys/class/infiniband"), ["mlx5_0"]);
        assert_eq!(names("/dev/infiniband"), ["uverbs0"]);
    });
}

/// UCX maps by a system call of its own, past the C library.
#[test]
fn the_system_itself_maps_the_file() {
    with_engine(
        "libmlx5::whole::paths::the_system_itself_maps_the_file",
        || {
            /// A call of `UVERBS_METHOD`, with room for three answers and a handle.
            #[repr(C)]
            struct Call {
                length: u16,
                object: u16,
                method: u16,
                attributes: u16,
                reserved: [u32; 4],
                attribute: [Attribute; 4],
            }
            /// `struct ib_uverbs_attr`.
            #[repr(C)]
            struct Attribute {
                id: u16,
                length: u16,
                flags: u32,
                data: u64,
            }
            let (mut offset, mut length, mut page) = (0_u64, 0_u32, 0_u32);
            let answer = |id: u16, length, data| Attribute {
                id: 0x1000 + id,
                length,
                flags: 0,
                data,
            };
            let mut call = Call {
                length: 88,
                // MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC.
                object: 0x1008,
                method: 0x1000,
                attributes: 4,
                reserved: [0; 4],
                attribute: [
                    answer(0, 0, 0),
                    answer(2, 8, (&raw mut offset).expose_provenance() as u64),
                    answer(3, 4, (&raw mut length).expose_provenance() as u64),
                    answer(4, 4, (&raw mut page).expose_provenance() as u64),
                ],
            };
            let path = DEVICE.to_str().unwrap();
            let device = File::options().read(true).write(true).open(path).unwrap();
            // SAFETY: the call is laid out as the device wants it, and its answers have room.
            let done = unsafe { libc::ioctl(device.as_raw_fd(), 0xc018_1b01, &raw mut call) };
            assert_eq!((done, length), (0, 4096));
            let map = || {
                // SAFETY: the system chooses the place.
                let mapped = unsafe {
                    libc::syscall(
                        libc::SYS_mmap,
                        ptr::null_mut::<u8>(),
                        length as usize,
                        libc::PROT_READ | libc::PROT_WRITE,
                        libc::MAP_SHARED,
                        device.as_raw_fd(),
                        offset,
                    )
                };
                assert_ne!(mapped, -1, "{}", std::io::Error::last_os_error());
                ptr::with_exposed_provenance_mut::<u64>(mapped as usize)
            };
            let (one, other) = (map(), map());
            // SAFETY: both are mapped, aligned to a page, and no queue uses the page.
            let read = unsafe {
                one.add(128).write_volatile(0x1234);
                other.add(128).read_volatile()
            };
            assert_eq!(read, 0x1234);
        },
    );
}
