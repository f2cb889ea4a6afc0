//! The form of a uverbs ioctl (`struct ib_uverbs_ioctl_hdr` of rdma/rdma_user_ioctl_cmds.h): an object, a method, and
//! attributes that carry bytes in and out.

use std::ffi::{c_int, c_ulong, c_void};
use std::slice;

/// `RDMA_VERBS_IOCTL`: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`.
pub const RDMA_VERBS_IOCTL: c_ulong =
    3 << 30 | (size_of::<Header>() as c_ulong) << 16 | 0x1b << 8 | 1;

/// An error number of the C library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// `struct ib_uverbs_ioctl_hdr`.
#[repr(C)]
struct Header {
    length: u16,
    object: u16,
    method: u16,
    attributes: u16,
    reserved1: u64,
    driver: u32,
    reserved2: u32,
}

/// `struct ib_uverbs_attr`.
#[repr(C)]
struct Attribute {
    id: u16,
    length: u16,
    flags: u16,
    data_of_enum: u16,
    data: u64,
}

/// `UVERBS_ATTR_F_VALID_OUTPUT`: the attribute was written.
const VALID_OUTPUT: u16 = 1 << 1;

/// One call: what is asked of which object, with what.
pub struct Request<'a> {
    /// Kind of the object.
    pub object: u16,
    /// What is asked.
    pub method: u16,
    attributes: &'a mut [Attribute],
}

impl<'a> Request<'a> {
    /// The request that an ioctl's argument points to.
    ///
    /// # Safety
    /// The argument must point to a header with its attributes, as libibverbs lays them out, and the attributes at
    /// memory that is there and nobody else's for `'a`.
    pub unsafe fn from_argument(argument: *mut c_void) -> Result<Self, Errno> {
        // SAFETY: the caller says so.
        let header = unsafe { argument.cast::<Header>().as_ref() }.ok_or(Errno(libc::EFAULT))?;
        let count = usize::from(header.attributes);
        if usize::from(header.length) != size_of::<Header>() + count * size_of::<Attribute>() {
            return Err(Errno(libc::EINVAL));
        }
        let (object, method) = (header.object, header.method);
        // SAFETY: the attributes follow the header, as many as it says.
        let attributes =
            unsafe { slice::from_raw_parts_mut(argument.cast::<Header>().add(1).cast(), count) };
        Ok(Self {
            object,
            method,
            attributes,
        })
    }

    fn find(&self, id: u16) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.id == id)
    }

    fn find_mut(&mut self, id: u16) -> Option<&mut Attribute> {
        self.attributes
            .iter_mut()
            .find(|attribute| attribute.id == id)
    }

    /// The number that an attribute carries in itself.
    pub fn number(&self, id: u16) -> Option<u64> {
        Some(self.find(id)?.data)
    }

    /// The object that an attribute names.
    pub fn handle(&self, id: u16) -> Option<u32> {
        u32::try_from(self.number(id)?).ok()
    }

    /// The bytes that an attribute brings; none where the attribute is not there.
    pub fn input(&self, id: u16) -> &[u8] {
        let Some(attribute) = self.find(id) else {
            return &[];
        };
        let length = usize::from(attribute.length);
        let start: *const u8 = if length <= size_of::<u64>() {
            (&raw const attribute.data).cast()
        } else {
            attribute.data as *const u8
        };
        // SAFETY: an attribute of 8 bytes or fewer carries them in itself, a longer one points at them.
        unsafe { slice::from_raw_parts(start, length) }
    }

    /// Bytes that an attribute has room for in an answer.
    pub fn room(&self, id: u16) -> usize {
        self.find(id).map_or(0, |attribute| attribute.length.into())
    }

    /// Fills the bytes that an attribute asks for, with as much of `answer` as it has room for, and zeros.
    pub fn answer(&mut self, id: u16, answer: &[u8]) {
        let Some(attribute) = self.find_mut(id) else {
            return;
        };
        attribute.flags |= VALID_OUTPUT;
        let length = usize::from(attribute.length);
        if length == 0 {
            return;
        }
        // SAFETY: the attribute points at as many bytes as it says, which are the request's.
        let room = unsafe { slice::from_raw_parts_mut(attribute.data as *mut u8, length) };
        room.fill(0);
        for (to, from) in room.iter_mut().zip(answer) {
            *to = *from;
        }
    }

    /// Puts a new object's number into the attribute that asks for it.
    pub fn answer_handle(&mut self, id: u16, handle: u32) {
        if let Some(attribute) = self.find_mut(id) {
            attribute.flags |= VALID_OUTPUT;
            attribute.data = handle.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Call {
        header: Header,
        attributes: [Attribute; 3],
    }

    fn attribute(id: u16, length: u16, data: u64) -> Attribute {
        Attribute {
            id,
            length,
            flags: 0,
            data_of_enum: 0,
            data,
        }
    }

    fn call(length: u16, attributes: [Attribute; 3]) -> Call {
        let header = Header {
            length,
            object: 7,
            method: 9,
            attributes: 3,
            reserved1: 0,
            driver: 0,
            reserved2: 0,
        };
        Call { header, attributes }
    }

    #[test]
    fn attributes_bring_and_take_bytes() {
        let long: [u8; 12] = *b"twelve bytes";
        let mut room = [0xff_u8; 6];
        let mut call = call(
            24 + 3 * 16,
            [
                attribute(1, 4, u32::from_ne_bytes(*b"four").into()),
                attribute(2, 12, long.as_ptr() as u64),
                attribute(3, 6, room.as_mut_ptr() as u64),
            ],
        );
        // SAFETY: the call is laid out as libibverbs does, and its memory outlives the request.
        let mut request = unsafe { Request::from_argument((&raw mut call).cast()) }.unwrap();
        assert_eq!((request.object, request.method), (7, 9));
        if cfg!(target_endian = "little") {
            assert_eq!(request.input(1), b"four");
        }
        assert_eq!(request.input(2), long);
        assert!(request.input(4).is_empty());
        assert_eq!(request.number(5), None);
        assert_eq!([request.room(3), request.room(4)], [6, 0]);
        request.answer(3, b"abc");
        request.answer(4, b"nobody asks");
        assert_eq!(&room, b"abc\0\0\0");
        assert_eq!(call.attributes[2].flags, VALID_OUTPUT);
    }

    #[test]
    fn a_malformed_call_is_refused() {
        let empty = || attribute(0, 0, 0);
        let mut call = call(24, [empty(), empty(), empty()]);
        // SAFETY: as above.
        let request = unsafe { Request::from_argument((&raw mut call).cast()) };
        assert_eq!(request.err(), Some(Errno(libc::EINVAL)));
        // SAFETY: a null pointer is looked for.
        let request = unsafe { Request::from_argument(std::ptr::null_mut()) };
        assert_eq!(request.err(), Some(Errno(libc::EFAULT)));
    }
}
