-- Wireshark's view of mlx5 send WQEs and CQEs. Each packet is one WQE or one CQE, as it lies in memory.
-- Files have link type USER0 (147) for WQEs and USER1 (148) for CQEs; docs/decode.md says how to make them.

local opcodes = {
  [0x00] = "NOP", [0x01] = "SEND_INVAL", [0x08] = "RDMA_WRITE", [0x09] = "RDMA_WRITE_IMM", [0x0a] = "SEND",
  [0x0b] = "SEND_IMM", [0x0e] = "TSO", [0x0f] = "WAIT", [0x10] = "RDMA_READ", [0x11] = "ATOMIC_CS",
  [0x12] = "ATOMIC_FA", [0x14] = "ATOMIC_MASKED_CS", [0x15] = "ATOMIC_MASKED_FA", [0x16] = "RECV_EN",
  [0x17] = "SEND_EN", [0x25] = "UMR",
}
local cqe_opcodes = {
  [0] = "REQ", [1] = "RESP_WR_IMM", [2] = "RESP_SEND", [3] = "RESP_SEND_IMM", [4] = "RESP_SEND_INV",
  [5] = "RESIZE_CQ", [6] = "NO_PACKET", [12] = "SIG_ERR", [13] = "REQ_ERR", [14] = "RESP_ERR", [15] = "INVALID",
}
local syndromes = {
  [0x01] = "local length error", [0x02] = "local QP operation error", [0x04] = "local protection error",
  [0x05] = "work request flushed", [0x06] = "memory window bind error", [0x10] = "bad response error",
  [0x11] = "local access error", [0x12] = "remote invalid request error", [0x13] = "remote access error",
  [0x14] = "remote operation error", [0x15] = "transport retry counter exceeded",
  [0x16] = "RNR retry counter exceeded", [0x22] = "remote aborted error",
}
local fences = { [0] = "none", [1] = "initiator small", [2] = "fence", [3] = "strong ordering", [4] = "small and fence" }
local completions = { [0] = "on error", [1] = "on first error", [2] = "always", [3] = "always, and an event" }

local wqe = Proto("mlx5_wqe", "mlx5 send WQE")
local w = wqe.fields
w.modifier = ProtoField.uint8("mlx5_wqe.modifier", "Opcode modifier", base.HEX)
w.index = ProtoField.uint16("mlx5_wqe.index", "WQE index", base.HEX)
w.opcode = ProtoField.uint8("mlx5_wqe.opcode", "Opcode", base.HEX, opcodes)
w.qpn = ProtoField.uint24("mlx5_wqe.qpn", "QPN", base.HEX)
w.ds = ProtoField.uint8("mlx5_wqe.ds", "Size in 16 bytes", base.DEC, nil, 0x3f)
w.signature = ProtoField.uint8("mlx5_wqe.signature", "Signature", base.HEX)
w.fence = ProtoField.uint8("mlx5_wqe.fence", "Fence", base.DEC, fences, 0xe0)
w.completion = ProtoField.uint8("mlx5_wqe.completion", "CQE", base.DEC, completions, 0x0c)
w.solicited = ProtoField.bool("mlx5_wqe.solicited", "Solicited", 8, nil, 0x02)
w.immediate = ProtoField.uint32("mlx5_wqe.immediate", "Immediate or key", base.HEX)
w.remote = ProtoField.uint64("mlx5_wqe.remote_address", "Remote address", base.HEX)
w.rkey = ProtoField.uint32("mlx5_wqe.rkey", "Remote key", base.HEX)
w.length = ProtoField.uint32("mlx5_wqe.length", "Length", base.DEC)
w.lkey = ProtoField.uint32("mlx5_wqe.lkey", "Local key", base.HEX)
w.address = ProtoField.uint64("mlx5_wqe.local_address", "Local address", base.HEX)
w.inline = ProtoField.bytes("mlx5_wqe.inline", "Inline data")
w.operand = ProtoField.uint64("mlx5_wqe.operand", "Operand", base.HEX)
w.wait_index = ProtoField.uint32("mlx5_wqe.wait_index", "Index", base.HEX)
w.wait_queue = ProtoField.uint32("mlx5_wqe.wait_queue", "Queue", base.HEX)
w.rest = ProtoField.bytes("mlx5_wqe.rest", "Not described")
local malformed = ProtoExpert.new("mlx5_wqe.malformed", "A segment reaches past the WQE's end",
  expert.group.MALFORMED, expert.severity.ERROR)
wqe.experts = { malformed }

-- Octowords of an atomic's own segments.
local function operands(opcode, modifier)
  if opcode == 0x14 and modifier ~= 0x08 then return 2 end
  return 1
end

local function data_segments(buffer, tree, at, stop)
  while at + 16 <= stop do
    local word = buffer(at, 4):uint()
    if word >= 0x80000000 then
      local length = word - 0x80000000
      tree:add(w.length, buffer(at, 4), length)
      if at + 4 + length > stop then
        tree:add_proto_expert_info(malformed)
        return
      end
      if length > 0 then tree:add(w.inline, buffer(at + 4, length)) end
      at = at + math.ceil((4 + length) / 16) * 16
    else
      tree:add(w.length, buffer(at, 4))
      tree:add(w.lkey, buffer(at + 4, 4))
      tree:add(w.address, buffer(at + 8, 8))
      at = at + 16
    end
  end
end

function wqe.dissector(buffer, packet, root)
  packet.cols.protocol = "MLX5 WQE"
  local tree = root:add(wqe, buffer())
  if buffer:len() < 16 then
    tree:add_proto_expert_info(malformed)
    return
  end
  local modifier, opcode = buffer(0, 1):uint(), buffer(3, 1):uint()
  tree:add(w.modifier, buffer(0, 1))
  tree:add(w.index, buffer(1, 2))
  tree:add(w.opcode, buffer(3, 1))
  tree:add(w.qpn, buffer(4, 3))
  tree:add(w.ds, buffer(7, 1))
  tree:add(w.signature, buffer(8, 1))
  tree:add(w.fence, buffer(11, 1))
  tree:add(w.completion, buffer(11, 1))
  tree:add(w.solicited, buffer(11, 1))
  tree:add(w.immediate, buffer(12, 4))
  packet.cols.info = string.format("%s, index %d, QP 0x%06x", opcodes[opcode] or "unknown opcode",
    buffer(1, 2):uint(), buffer(4, 3):uint())
  local stop = 16 * (buffer(7, 1):uint() % 64)
  if stop == 0 or stop > buffer:len() then
    tree:add_proto_expert_info(malformed)
    stop = math.min(stop, buffer:len())
  end
  local at = 16
  local is_atomic = opcode == 0x11 or opcode == 0x12 or opcode == 0x14 or opcode == 0x15
  if opcode == 0x08 or opcode == 0x09 or opcode == 0x10 or is_atomic then
    if at + 16 > stop then
      tree:add_proto_expert_info(malformed)
      return
    end
    tree:add(w.remote, buffer(at, 8))
    tree:add(w.rkey, buffer(at + 8, 4))
    at = at + 16
  end
  if is_atomic then
    local last = at + 16 * operands(opcode, modifier)
    while at < last and at + 8 <= stop do
      tree:add(w.operand, buffer(at, 8))
      at = at + 8
    end
  end
  if opcode == 0x0f or opcode == 0x16 or opcode == 0x17 then
    if at + 16 > stop then
      tree:add_proto_expert_info(malformed)
      return
    end
    tree:add(w.wait_index, buffer(at + 8, 4))
    tree:add(w.wait_queue, buffer(at + 12, 4))
  elseif opcodes[opcode] and opcode ~= 0x00 and opcode ~= 0x0e and opcode ~= 0x25 then
    data_segments(buffer, tree, at, stop)
  elseif at < stop then
    tree:add(w.rest, buffer(at, stop - at))
  end
end

local cqe = Proto("mlx5_cqe", "mlx5 CQE")
local c = cqe.fields
c.user_index = ProtoField.uint24("mlx5_cqe.user_index", "User index", base.HEX)
c.immediate = ProtoField.uint32("mlx5_cqe.immediate", "Immediate or key", base.HEX)
c.byte_count = ProtoField.uint32("mlx5_cqe.byte_count", "Byte count", base.DEC)
c.timestamp = ProtoField.uint64("mlx5_cqe.timestamp", "Timestamp", base.HEX)
c.vendor = ProtoField.uint8("mlx5_cqe.vendor", "Vendor code", base.HEX)
c.syndrome = ProtoField.uint8("mlx5_cqe.syndrome", "Syndrome", base.HEX, syndromes)
c.wqe_opcode = ProtoField.uint8("mlx5_cqe.wqe_opcode", "WQE opcode", base.HEX, opcodes)
c.qpn = ProtoField.uint24("mlx5_cqe.qpn", "QPN", base.HEX)
c.counter = ProtoField.uint16("mlx5_cqe.wqe_counter", "WQE counter", base.HEX)
c.signature = ProtoField.uint8("mlx5_cqe.signature", "Signature", base.HEX)
c.opcode = ProtoField.uint8("mlx5_cqe.opcode", "CQE opcode", base.HEX, cqe_opcodes, 0xf0)
c.format = ProtoField.uint8("mlx5_cqe.format", "Format", base.DEC, nil, 0x0c)
c.solicited = ProtoField.bool("mlx5_cqe.solicited", "Solicited", 8, nil, 0x02)
c.owner = ProtoField.uint8("mlx5_cqe.owner", "Owner", base.DEC, nil, 0x01)

function cqe.dissector(buffer, packet, root)
  packet.cols.protocol = "MLX5 CQE"
  local tree = root:add(cqe, buffer())
  if buffer:len() < 64 then return end
  local opcode = math.floor(buffer(63, 1):uint() / 16)
  tree:add(c.user_index, buffer(33, 3))
  if opcode == 13 or opcode == 14 then
    tree:add(c.vendor, buffer(54, 1))
    tree:add(c.syndrome, buffer(55, 1))
  else
    tree:add(c.immediate, buffer(36, 4))
    tree:add(c.byte_count, buffer(44, 4))
    tree:add(c.timestamp, buffer(48, 8))
  end
  tree:add(c.wqe_opcode, buffer(56, 1))
  tree:add(c.qpn, buffer(57, 3))
  tree:add(c.counter, buffer(60, 2))
  tree:add(c.signature, buffer(62, 1))
  tree:add(c.opcode, buffer(63, 1))
  tree:add(c.format, buffer(63, 1))
  tree:add(c.solicited, buffer(63, 1))
  tree:add(c.owner, buffer(63, 1))
  local info = string.format("%s, WQE %d of QP 0x%06x", cqe_opcodes[opcode] or "unknown opcode",
    buffer(60, 2):uint(), buffer(57, 3):uint())
  if opcode == 13 or opcode == 14 then
    info = info .. ": " .. (syndromes[buffer(55, 1):uint()] or "unknown syndrome")
  end
  packet.cols.info = info
end

local table = DissectorTable.get("wtap_encap")
table:add(wtap.USER0, wqe)
table:add(wtap.USER1, cqe)
