"""Prints RoCE v2 packets as scapy builds them, CRCs included, one a line, for tests/all/scapy.rs.

    python3 scapy_packets.py [SEED]

A line `opcode NUMBER NAME` names an opcode. Other lines have KEY=VALUE pairs: the fields, and `packet`, the packet
from the IP header on. Numbers are hexadecimal. tests/data/scapy.txt is the output for seed 0.
"""

import random
import struct
import sys

from scapy.contrib.roce import AETH, BTH, CNPPadding, _bth_opcodes
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

# IBTA volume 1, table 38: which extended headers follow an opcode.
HEADERS = {}
for transport in (0x00, 0x20):
    HEADERS |= {transport + o: [] for o in (0x00, 0x01, 0x02, 0x04, 0x07, 0x08)}
    HEADERS |= {transport + o: ["immediate"] for o in (0x03, 0x05, 0x09)}
    HEADERS |= {transport + o: ["reth"] for o in (0x06, 0x0A)}
    HEADERS |= {transport + 0x0B: ["reth", "immediate"]}
HEADERS |= {0x0C: ["reth"], 0x0E: [], 0x0D: ["aeth"], 0x0F: ["aeth"], 0x10: ["aeth"]}
HEADERS |= {0x11: ["aeth"], 0x12: ["aeth", "atomic_ack"], 0x13: ["atomic"], 0x14: ["atomic"]}
HEADERS |= {0x16: ["ieth"], 0x17: ["ieth"], 0x64: ["deth"], 0x65: ["deth", "immediate"], 0x81: ["cnp"]}
NO_PAYLOAD = (0x0C, 0x11, 0x12, 0x13, 0x14, 0x81)

BITS = {
    "se": 1, "migreq": 1, "fecn": 1, "becn": 1, "ackreq": 1, "pkey": 16, "dqpn": 24, "psn": 24,
    "va": 64, "key": 32, "length": 32, "swap": 64, "compare": 64, "original": 64, "data": 32,
    "source_qp": 24, "syndrome": 8, "msn": 24, "id": 16, "source_port": 16,
}


def header(name, f):
    """An extended header with these fields; scapy has classes for two of them."""
    match name:
        case "aeth":
            return AETH(syndrome=f["syndrome"], msn=f["msn"])
        case "cnp":
            return CNPPadding()
        case "reth":
            return Raw(struct.pack("!QII", f["va"], f["key"], f["length"]))
        case "atomic":
            return Raw(struct.pack("!QIQQ", f["va"], f["key"], f["swap"], f["compare"]))
        case "atomic_ack":
            return Raw(struct.pack("!Q", f["original"]))
        case "deth":
            return Raw(struct.pack("!II", f["key"], f["source_qp"]))
        case "ieth":
            return Raw(struct.pack("!I", f["key"]))
        case "immediate":
            return Raw(struct.pack("!I", f["data"]))


def packet(version, opcode, payload, f, rng):
    if version == 4:
        ip = IP(src=f"10.0.{rng.getrandbits(8)}.1", dst=f"10.1.{rng.getrandbits(8)}.2", id=f["id"],
                flags="DF", tos=rng.getrandbits(8), ttl=rng.randrange(1, 256))
    else:
        ip = IPv6(src=f"fe80::{f['id']:x}", dst=f"2001:db8::{rng.getrandbits(16):x}",
                  tc=rng.getrandbits(8), fl=rng.getrandbits(20), hlim=rng.randrange(1, 256))
    pad = -len(payload) % 4
    built = ip / UDP(sport=f["source_port"], dport=4791) / BTH(
        opcode=opcode, solicited=f["se"], migreq=f["migreq"], padcount=pad, pkey=f["pkey"],
        fecn=f["fecn"], becn=f["becn"], dqpn=f["dqpn"], ackreq=f["ackreq"], psn=f["psn"])
    for name in HEADERS[opcode]:
        built /= header(name, f)
    return bytes(built / Raw(payload + bytes(pad)))


def main():
    rng = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    for number, name in _bth_opcodes.items():
        print(f"opcode {number:x} {name}")
    for version in (4, 6):
        for place, opcode in enumerate(sorted(HEADERS)):
            fields = {name: rng.getrandbits(bits) for name, bits in BITS.items()}
            payload = rng.randbytes(0 if opcode in NO_PAYLOAD else place % 9)
            line = [f"{name}={value:x}" for name, value in fields.items()]
            line += [f"opcode={opcode:x}", f"payload={payload.hex()}"]
            line += [f"packet={packet(version, opcode, payload, fields, rng).hex()}"]
            print(" ".join(line))


main()
