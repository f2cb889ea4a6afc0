//! Where libmlx5's code lies.
//!
//! What this library does for libmlx5 alone, it does only if libmlx5 calls: another caller may hold a lock that the work
//! needs. UCX, for example, leaves spin locks of its own below `free`, which holds malloc's.

use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::OnceLock;

/// How the names of its files begin, with a version behind: `libmlx5.so.1`, or a provider's `libmlx5-rdmav34.so`.
const NAME: &[u8] = b"libmlx5";

/// Its code, once it was found.
static CODE: OnceLock<Range<usize>> = OnceLock::new();

/// Looks for it, unless it is known: a device that is opened has loaded it.
pub fn find() {
    if CODE.get().is_none()
        && let Some(code) = code_of(NAME)
    {
        // Who came first found the same.
        let _ = CODE.set(code);
    }
}

/// Whether this address is in its code.
pub fn contains(address: usize) -> bool {
    CODE.get().is_some_and(|code| code.contains(&address))
}

/// What [`look_at`] is to find, and what it found.
struct Search {
    name: &'static [u8],
    code: Option<Range<usize>>,
}

/// The addresses of the code of the first loaded library whose file's name begins like this.
fn code_of(name: &'static [u8]) -> Option<Range<usize>> {
    let mut search = Search { name, code: None };
    // SAFETY: `look_at` takes what it is called with, and the search stays until all calls are over.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    search.code
}

/// # Safety
/// As `dl_iterate_phdr` calls it, with a [`Search`] that is nobody else's.
unsafe extern "C" fn look_at(
    library: *mut libc::dl_phdr_info,
    _: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the caller says so.
    let (library, search) = unsafe { (&*library, &mut *search.cast::<Search>()) };
    // SAFETY: the loader's names are C strings.
    let path = unsafe { CStr::from_ptr(library.dlpi_name) }.to_bytes();
    let file = path.rsplit(|byte| *byte == b'/').next();
    if !file.is_some_and(|file| file.starts_with(search.name)) {
        return 0;
    }
    // SAFETY: the loader's headers are as many.
    let headers =
        unsafe { std::slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into()) };
    let segments = headers.iter().filter(|header| {
        header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X == libc::PF_X
    });
    let segment = |header: &libc::Elf64_Phdr| {
        let start = (library.dlpi_addr + header.p_vaddr) as usize;
        start..start + header.p_memsz as usize
    };
    search.code = segments
        .map(segment)
        .reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
    // Anything but 0 ends the search.
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_librarys_code_is_found_and_nothing_else() {
        let code = code_of(b"libc.so").expect("a C library");
        let inside = libc::getpid as *const () as usize;
        let outside = find as *const () as usize;
        assert!(code.contains(&inside), "{inside:#x} in {code:#x?}");
        assert!(!code.contains(&outside), "{outside:#x} in {code:#x?}");
        assert_eq!(code_of(b"libnone"), None);
    }
}
