"""Prints of each capture file how many RoCE v2 packets scapy finds in it, and how many have another CRC than scapy's."""

import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP
from scapy.utils import rdpcap

for path in sys.argv[1:]:
    packets = [packet[BTH] for packet in rdpcap(path) if BTH in packet]
    # scapy has no CRC over IPv6.
    judged = [bth for bth in packets if isinstance(bth.underlayer.underlayer, IP)]
    wrong = [bth for bth in judged if bth.compute_icrc(bytes(bth)) != bytes(bth)[-4:]]
    print(len(packets), len(judged), len(wrong))
