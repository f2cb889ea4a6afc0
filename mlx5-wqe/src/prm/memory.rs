//! Memory that queues live in (umem), and pages of doorbells (UAR).

use super::bits::Field;
use super::codes::CommandOpcode;
use super::queue_pair::Done;
use super::record::{self, Command, PrmError, Record, records};

records! {
    /// A page of a umem.
    plain Mtt = "mtt", 8 {
        /// Address, bits 63:32.
        ptag_63_32: u32 = 0x0, 32;
        /// Address, bits 31:8.
        ptag_31_8: u32 = 0x20, 24;
        /// The card may write.
        wr_en: bool = 0x3e, 1;
        /// The card may read.
        rd_en: bool = 0x3f, 1;
    }

    /// The context of a umem: memory that queues live in. The pages ([`Mtt`]) follow.
    plain UmemContext = "umem", 32 {
        /// Addresses are translated by the IOMMU.
        ats: bool = 0x80, 1;
        /// Logarithm of the page size, less 12.
        log_page_size: u8 = 0x9b, 5;
        /// Offset of the first byte in the first page.
        page_offset: u32 = 0xa0, 32;
        /// Pages.
        num_of_mtt: u64 = 0xc0, 64;
    }

    /// Registers memory for queues; on Linux the kernel sends it. The pages ([`Mtt`]) follow.
    command(CREATE_UMEM => CreateUmemAnswer) CreateUmem = "create_umem_in", 48 {
        /// User context.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The context.
        umem: UmemContext = 0x80, 256;
    }

    /// The answer to [`CreateUmem`].
    answer CreateUmemAnswer = "create_umem_out", 16 {
        /// The umem's number, 24 bits.
        umem_id: u32 = 0x48, 24;
    }

    /// Gives a umem back.
    command(DESTROY_UMEM => Done) DestroyUmem = "destroy_umem_in", 16 {
        /// User context.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The umem, 24 bits.
        umem_id: u32 = 0x48, 24;
    }

    /// Allocates a UAR page.
    command(ALLOC_UAR => AllocUarAnswer) AllocUar = "alloc_uar_in", 16 {
        /// User context.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
    }

    /// The answer to [`AllocUar`].
    answer AllocUarAnswer = "alloc_uar_out", 16 {
        /// The page's number, 24 bits.
        uar: u32 = 0x48, 24;
    }

    /// Gives a UAR page back.
    command(DEALLOC_UAR => Done) DeallocUar = "dealloc_uar_in", 16 {
        /// User context.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The page, 24 bits.
        uar: u32 = 0x48, 24;
    }
}
