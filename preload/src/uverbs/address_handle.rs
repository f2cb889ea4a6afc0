//! Where datagrams go.

use warpbell_soft_hca::shell::roce::LEAST_MTU;

use super::{Write, gids, open};
use crate::abi::{AddressHandleRequest, DriverAddressHandle};
use crate::attributes::Errno;
use crate::machine::machine;

/// Creates an address handle: makes the link to where it leads, and resolves the MAC address behind a link-local GID.
pub fn create(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    // After the pointer to the answer, and the user's handle.
    let wanted: AddressHandleRequest = write.input(16)?;
    let handle = open::fresh();
    if let Some(machine) = machine()? {
        if !write.open.domains.contains_key(&wanted.pd_handle) {
            return Err(write.open.missing(wanted.pd_handle));
        }
        gids::check_path(
            machine.gids(),
            wanted.port_num,
            wanted.is_global,
            wanted.sgid_index,
        )?;
        // The way that its datagrams will take, if there is one: to others they are lost.
        let _ = machine.reach(wanted.dgid, LEAST_MTU);
        write.open.address_handles.insert(handle, wanted.pd_handle);
    }
    write.answer(&handle);
    write.answer_driver(&DriverAddressHandle {
        response_length: size_of::<DriverAddressHandle>() as u32,
        dmac: mac_of(wanted.dgid),
        reserved: [0; 6],
    });
    Ok(())
}

/// Destroys an address handle.
pub fn destroy(write: &mut Write<'_, '_>) -> Result<(), Errno> {
    let handle: u32 = write.input(0)?;
    if machine()?.is_some() && write.open.address_handles.remove(&handle).is_none() {
        return Err(write.open.missing(handle));
    }
    write.done();
    Ok(())
}

/// The MAC address that a link-local GID was made from (EUI-64). That of an IP address stays 0: the engine needs none.
fn mac_of(gid: [u8; 16]) -> [u8; 6] {
    let [0xfe, 0x80, _, _, _, _, _, _, a, b, c, _, _, d, e, f] = gid else {
        return [0; 6];
    };
    [a ^ 2, b, c, d, e, f]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_local_gid_tells_the_mac() {
        let mut gid = [0; 16];
        gid[..2].copy_from_slice(&[0xfe, 0x80]);
        gid[8..].copy_from_slice(&[0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55]);
        assert_eq!(mac_of(gid), [0x00, 0x11, 0x22, 0x33, 0x44, 0x55]);
        gid[..2].fill(0);
        assert_eq!(mac_of(gid), [0; 6]);
    }
}
