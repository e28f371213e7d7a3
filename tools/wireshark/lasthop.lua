-- Wireshark dissectors for lasthop's hop: Mobile TCP (docs/mobile-tcp.md), the hop datagram
-- (docs/seal.md) and SRP's frames (docs/srp.md).
--
--   tshark -X lua_script:tools/wireshark/lasthop.lua -r capture.pcap
--
-- or put the file into Wireshark's folder for personal Lua plugins (Help, About, Folders).
--
-- EtherType 0x88b5 is a bare Mobile TCP packet; 0x88b6 is a hop datagram behind its length, or, where
-- that begins with 0xff, something between two agents (docs/agent.md); on UDP
-- port 4433 (a preference) the first byte tells which of the two it is. Bare Mobile TCP is
-- recognised on other UDP ports too, where lengths and checksum are right. What is sealed is shown
-- as ciphertext. Data of an association is known to be unsealed by the association's plain
-- handshake, which must be in the capture; else a preference says what it is.

local ETHERTYPE_BARE = 0x88b5
local ETHERTYPE_HOP = 0x88b6
local UDP_PORT = 4433

local udp_port = UDP_PORT

-- Mobile TCP

local mobile = Proto("mobiletcp", "Mobile TCP")

local DATA_HEADER, CONTROL_HEADER, MAX_WINDOW = 16, 28, 32767

-- Code bits in the order in which they are told.
local FLAGS = {
    { "syn", "SYN", 0x0002 },
    { "fin", "FIN", 0x0001 },
    { "rst", "RST", 0x0004 },
    { "psh", "PSH", 0x0008 },
    { "ack", "ACK", 0x0010 },
    { "rrq", "RRQ", 0x0020 },
    { "rc", "RC", 0x0040 },
    { "rcr", "RCR", 0x0080 },
    { "listen", "LISTEN", 0x0100 },
    { "unknown", "UNKNOWN", 0x0200 },
    { "pending", "PENDING", 0x0400 },
}

local EXTENSION_TYPES = { [0] = "End", [1] = "Session message", [2] = "Reset code" }
local CHECKSUM_STATUS = { [0] = "Bad", [1] = "Good" }

local m = {
    code = ProtoField.uint16("mobiletcp.code", "Code bits", base.HEX),
    control = ProtoField.bool("mobiletcp.code.control", "Control packet", 16, nil, 0x8000),
    version = ProtoField.uint16("mobiletcp.code.version", "Version", base.DEC, nil, 0x7000),
    flags = ProtoField.string("mobiletcp.flags", "Flags"),
    cid = ProtoField.uint16("mobiletcp.cid", "Connection ID"),
    seq = ProtoField.uint16("mobiletcp.seq", "Sequence number"),
    ack = ProtoField.uint16("mobiletcp.ack", "Acknowledgement number"),
    stream = ProtoField.uint16("mobiletcp.stream", "Opener's stream, halved, low 16 bits"),
    window = ProtoField.uint16("mobiletcp.window", "Window"),
    nack = ProtoField.uint16("mobiletcp.nack", "Next in-order segment"),
    missing = ProtoField.uint16("mobiletcp.missing", "Bytes missing"),
    len = ProtoField.uint16("mobiletcp.len", "Data length"),
    checksum = ProtoField.uint16("mobiletcp.checksum", "Checksum", base.HEX),
    checksum_status = ProtoField.uint8(
        "mobiletcp.checksum.status", "Checksum status", base.DEC, CHECKSUM_STATUS),
    data = ProtoField.bytes("mobiletcp.data", "Data"),
    reverse_cid = ProtoField.uint16("mobiletcp.reverse_cid", "Reverse connection ID"),
    max_buffer = ProtoField.uint16("mobiletcp.max_buffer", "Maximum buffer size"),
    max_packet = ProtoField.uint16("mobiletcp.max_packet", "Maximum packet size"),
    dstport = ProtoField.uint16("mobiletcp.dstport", "Destination port"),
    srcport = ProtoField.uint16("mobiletcp.srcport", "Source port"),
    dst = ProtoField.ipv4("mobiletcp.dst", "Destination address"),
    src = ProtoField.ipv4("mobiletcp.src", "Source address"),
    reset_code = ProtoField.uint64("mobiletcp.reset_code", "Reset code"),
    extension = ProtoField.uint8(
        "mobiletcp.extension.type", "Extension", base.DEC, EXTENSION_TYPES),
    extension_len = ProtoField.uint16("mobiletcp.extension.len", "Length"),
    extension_value = ProtoField.bytes("mobiletcp.extension.value", "Value"),
    message = ProtoField.bytes("mobiletcp.extension.message", "Session message"),
    word = ProtoField.string("mobiletcp.word", "Word"),
    life = ProtoField.uint64("mobiletcp.life", "Mobile's life", base.HEX),
    instance = ProtoField.uint64("mobiletcp.instance", "Base's number", base.HEX),
    first_stream = ProtoField.uint64("mobiletcp.first_stream", "First stream"),
    padding = ProtoField.bytes("mobiletcp.padding", "Padding"),
}
for _, flag in ipairs(FLAGS) do
    local name, label, mask = flag[1], flag[2], flag[3]
    m["flag_" .. name] = ProtoField.bool("mobiletcp.flags." .. name, label, 16, nil, mask)
end
mobile.fields = m


local GROUP, SEVERITY = expert.group, expert.severity

local mx = {
    truncated = ProtoExpert.new(
        "mobiletcp.truncated", "Cut short", GROUP.MALFORMED, SEVERITY.ERROR),
    version = ProtoExpert.new(
        "mobiletcp.bad_version", "Unknown version", GROUP.MALFORMED, SEVERITY.ERROR),
    checksum = ProtoExpert.new(
        "mobiletcp.bad_checksum", "Wrong checksum", GROUP.CHECKSUM, SEVERITY.ERROR),
    code = ProtoExpert.new(
        "mobiletcp.bad_code", "Code bits of a control packet", GROUP.MALFORMED, SEVERITY.ERROR),
    window = ProtoExpert.new(
        "mobiletcp.bad_window", "Window above 32767", GROUP.MALFORMED, SEVERITY.ERROR),
    extension = ProtoExpert.new(
        "mobiletcp.bad_extension", "Extension of an impossible length", GROUP.MALFORMED,
        SEVERITY.ERROR),
    request = ProtoExpert.new(
        "mobiletcp.request", "Retransmission request", GROUP.SEQUENCE, SEVERITY.NOTE),
    unknown = ProtoExpert.new(
        "mobiletcp.unknown_cid", "The peer has no such connection", GROUP.RESPONSE_CODE,
        SEVERITY.WARN),
    reset = ProtoExpert.new(
        "mobiletcp.reset", "Reset or refusal", GROUP.RESPONSE_CODE, SEVERITY.WARN),
}
mobile.experts = mx

-- The checksum that `len` bytes from `at` should have if its field is at `field`.
local function right_checksum(tvb, at, len, field)
    local bytes = tvb:raw(at, len)
    local sum = 0
    for i = 1, len, 2 do
        if i - 1 ~= field then
            sum = sum + bytes:byte(i) * 256 + (bytes:byte(i + 1) or 0)
        end
    end
    while sum > 0xffff do
        sum = sum % 0x10000 + math.floor(sum / 0x10000)
    end
    return 0xffff - sum
end

-- 0 and 0xffff are the same number to the sum, but only one of them makes the whole come out.
local function checksum_is_right(tvb, len, field)
    return tvb(field, 2):uint() == right_checksum(tvb, 0, len, field)
end

local function has(code, mask)
    return code % (mask * 2) >= mask
end

local function is_mobile_tcp(first)
    local kind = math.floor(first / 16)
    return kind == 0x0 or kind == 0x8 or kind == 0x9
end

-- Where the packet's parts are: { control =, version =, header =, len =, extensions = }, or nil and
-- why there is no packet: an expert, its text, and how many bytes of the header can be read.
local function outline(tvb)
    local found = tvb:len()
    if found < 2 then
        return nil, mx.truncated, "only " .. found .. " bytes", 0
    end
    local code = tvb(0, 2):uint()
    local control = code >= 0x8000
    local version = math.floor(code / 0x1000) % 8
    local header = control and CONTROL_HEADER or DATA_HEADER
    if version > (control and 1 or 0) then
        return nil, mx.version, "version " .. version, 2
    end
    if found < header then
        return nil, mx.truncated, found .. " bytes, the header has " .. header, 2
    end
    local packet = { code = code, control = control, header = header, len = header }
    if not control then
        packet.len = header + tvb(12, 2):uint()
        if found < packet.len then
            return nil, mx.truncated, found .. " bytes, the length says " .. packet.len, header
        end
    elseif version == 1 then
        packet.extensions = {}
        local at = header
        repeat
            if found < at + 4 then
                return nil, mx.truncated, "the extensions have no end", header
            end
            local kind, len = tvb(at, 1):uint(), tvb(at + 2, 2):uint()
            if (kind == 0 and len ~= 0) or (kind == 2 and len ~= 8) then
                return nil, mx.extension, "type " .. kind .. " with " .. len .. " bytes", header
            end
            if found < at + 4 + len then
                return nil, mx.truncated, "an extension is longer than the packet", header
            end
            table.insert(packet.extensions, { at = at, kind = kind, len = len })
            at = at + 4 + len
        until kind == 0
        packet.len = at
    end
    return packet
end

local function flag_names(code)
    local names = {}
    for _, flag in ipairs(FLAGS) do
        if has(code, flag[3]) then
            table.insert(names, flag[2])
        end
    end
    return #names > 0 and table.concat(names, " ") or "-"
end

local function add_code(tree, tvb, code)
    local sub = tree:add(m.code, tvb(0, 2))
    sub:append_text(" (" .. flag_names(code) .. ")")
    sub:add(m.control, tvb(0, 2))
    sub:add(m.version, tvb(0, 2))
    for _, flag in ipairs(FLAGS) do
        sub:add(m["flag_" .. flag[1]], tvb(0, 2))
    end
    sub:add(m.flags, tvb(0, 2), flag_names(code)):set_generated()
    return sub
end

local function add_checksum(tree, tvb, field, len)
    local right = right_checksum(tvb, 0, len, field)
    local item = tree:add(m.checksum, tvb(field, 2))
    local good = checksum_is_right(tvb, len, field)
    tree:add(m.checksum_status, tvb(field, 2), good and 1 or 0):set_generated()
    if good then
        item:append_text(" [correct]")
    else
        item:append_text(string.format(" [should be 0x%04x]", right))
        item:add_proto_expert_info(mx.checksum, string.format("should be 0x%04x", right))
    end
end

-- What the ends of a bare hop say about themselves: data packets with connection ID 0 and RST.
local function word_of(code)
    if not has(code, 0x0004) then
        return has(code, 0x0008) and "Ping" or "Keepalive"
    elseif has(code, 0x0200) then
        return "Stranger"
    elseif has(code, 0x0008) then
        return "Greeting", { m.life, m.first_stream }
    elseif has(code, 0x0010) then
        return "Answer", { m.life, m.instance, m.first_stream }
    end
    return "Close"
end

local function add_word(tree, tvb, packet)
    local name, numbers = word_of(packet.code)
    local at = packet.header
    tree:add(m.word, tvb(0, 2), name):set_generated()
    for _, field in ipairs(numbers or {}) do
        if at + 8 <= packet.len then
            tree:add(field, tvb(at, 8))
            at = at + 8
        end
    end
    if at < packet.len then
        tree:add(m.data, tvb(at, packet.len - at))
    end
    return name .. " (" .. flag_names(packet.code) .. ") Len=" .. (packet.len - packet.header)
end

local function add_data(tree, tvb, packet)
    local code, at = packet.code, packet.header
    local reset, request = has(code, 0x0004), has(code, 0x0020)
    local ack, window, nack = tvb(6, 2):uint(), tvb(8, 2):uint(), tvb(10, 2):uint()
    local code_item = add_code(tree, tvb, code)
    if has(code, 0x0002) or has(code, 0x0100) or has(code, 0x0400) then
        code_item:add_proto_expert_info(mx.code, "SYN, LISTEN or PENDING in a data packet")
    end
    tree:add(m.cid, tvb(2, 2))
    tree:add(m.seq, tvb(4, 2))
    tree:add(m.ack, tvb(6, 2))
    local concerns_none = tvb(2, 2):uint() == 0
    if reset then
        tree:add(m.reset_code, tvb(8, 2), UInt64.new(window))
        if has(code, 0x0200) then
            code_item:add_proto_expert_info(mx.unknown)
        elseif not concerns_none then
            code_item:add_proto_expert_info(mx.reset)
        end
    else
        local item = tree:add(m.window, tvb(8, 2))
        if window > MAX_WINDOW then
            item:add_proto_expert_info(mx.window)
        end
    end
    local item = tree:add(m.nack, tvb(10, 2))
    if request then
        local missing = (nack - ack) % 0x10000
        tree:add(m.missing, tvb(10, 2), missing):set_generated()
        local text = string.format("wants %d bytes from %d", missing, ack)
        item:add_proto_expert_info(mx.request, text)
    end
    tree:add(m.len, tvb(12, 2))
    add_checksum(tree, tvb, 14, packet.len)
    if concerns_none then
        return add_word(tree, tvb, packet)
    end
    if packet.len > at then
        tree:add(m.data, tvb(at, packet.len - at))
    end
    local info = string.format(
        "%s CID=%d Seq=%d", flag_names(code), tvb(2, 2):uint(), tvb(4, 2):uint())
    if has(code, 0x0010) then
        info = info .. " Ack=" .. ack
    end
    info = info .. (reset and " Code=" or " Win=") .. window
    if request then
        info = info .. " NIS=" .. nack
    end
    return info .. " Len=" .. (packet.len - at)
end

local function add_extensions(tree, tvb, extensions)
    for _, extension in ipairs(extensions) do
        local at, kind, len = extension.at, extension.kind, extension.len
        local sub = tree:add(m.extension, tvb(at, 1))
        sub:set_len(4 + len)
        sub:add(m.extension_len, tvb(at + 2, 2))
        if kind == 1 then
            sub:add(m.message, tvb(at + 4, len))
        elseif kind == 2 then
            sub:add(m.reset_code, tvb(at + 4, 8))
        elseif len > 0 then
            sub:add(m.extension_value, tvb(at + 4, len))
        end
    end
end

local function add_control(tree, tvb, packet)
    local code = packet.code
    local opening = has(code, 0x0002) and not has(code, 0x0010)
    local code_item = add_code(tree, tvb, code)
    tree:add(m.cid, tvb(2, 2))
    tree:add(m.seq, tvb(4, 2))
    tree:add(opening and m.stream or m.ack, tvb(6, 2))
    tree:add(m.reverse_cid, tvb(8, 2))
    add_checksum(tree, tvb, 10, packet.len)
    if has(code, 0x0004) then
        tree:add(m.reset_code, tvb(12, 2), UInt64.new(tvb(12, 2):uint()))
        code_item:add_proto_expert_info(mx.reset)
    else
        tree:add(m.max_buffer, tvb(12, 2))
    end
    tree:add(m.max_packet, tvb(14, 2))
    tree:add(m.dstport, tvb(16, 2))
    tree:add(m.srcport, tvb(18, 2))
    tree:add(m.dst, tvb(20, 4))
    tree:add(m.src, tvb(24, 4))
    add_extensions(tree, tvb, packet.extensions or {})
    return string.format(
        "%s CID=%d Reverse=%d %s:%d > %s:%d", flag_names(code), tvb(2, 2):uint(),
        tvb(8, 2):uint(), tostring(tvb(24, 4):ipv4()), tvb(18, 2):uint(),
        tostring(tvb(20, 4):ipv4()), tvb(16, 2):uint())
end

function mobile.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "Mobile TCP"
    local packet, why, text, readable = outline(tvb)
    local tree = root:add(mobile, tvb(0, packet and packet.len or tvb:len()))
    if not packet then
        if readable >= 2 then
            add_code(tree, tvb, tvb(0, 2):uint())
        end
        tree:add_proto_expert_info(why, text)
        pinfo.cols.info = "Malformed: " .. text
        return tvb:len()
    end
    local add = packet.control and add_control or add_data
    pinfo.cols.info = add(tree, tvb, packet)
    if tvb:len() > packet.len then
        root:add(m.padding, tvb(packet.len))
    end
    return tvb:len()
end

-- A packet whose lengths and checksum are right is one; chance makes that of other bytes once in
-- 65536 times, and lengths make it rarer.
local function is_whole_packet(tvb)
    if tvb:len() < DATA_HEADER or not is_mobile_tcp(tvb(0, 1):uint()) then
        return false
    end
    local packet = outline(tvb)
    return packet ~= nil and checksum_is_right(tvb, packet.len, packet.control and 10 or 14)
end

mobile:register_heuristic("udp", function(tvb, pinfo, root)
    if tvb:len() ~= tvb:reported_len() or not is_whole_packet(tvb) then
        return false
    end
    mobile.dissector(tvb, pinfo, root)
    return true
end)

-- SRP

local srp = Proto("lasthop_srp", "Selective Repeat Protocol")

local FRAME_TYPES = {
    [0x00] = "Padding",
    [0x01] = "Ping",
    [0x02] = "Acknowledgement",
    [0x03] = "Floor",
    [0x04] = "Urge",
    [0x05] = "Credit",
    [0x06] = "Stream credit",
    [0x07] = "Blocked",
    [0x08] = "Stream blocked",
    [0x09] = "Reset",
    [0x0a] = "Close",
    [0x0b] = "Priority",
    [0x0c] = "Client",
    [0x0d] = "Policy",
    [0x0e] = "Path status",
    [0x0f] = "Release",
    [0x10] = "Stream, to the datagram's end",
    [0x11] = "Stream, to the datagram's end, last",
    [0x12] = "Stream",
    [0x13] = "Stream, last",
    [0x14] = "Packet",
    [0x15] = "Part of a packet",
    [0x16] = "Packet that met congestion",
    [0x17] = "Part of a packet that met congestion",
    [0x18] = "Packet whose headers are kept",
    [0x19] = "Part of a packet whose headers are kept",
    [0x1a] = "Packet whose headers are kept, met congestion",
    [0x1b] = "Part of a packet whose headers are kept, met congestion",
    [0x1c] = "Packet without headers",
    [0x1d] = "Part of a packet without headers",
    [0x1e] = "Packet without headers that met congestion",
    [0x1f] = "Part of a packet without headers that met congestion",
}
local MAX_ACK_SPAN = 8192
local PACKET_MAX = 65535

local s = {
    frame = ProtoField.uint8("lasthop_srp.frame", "Frame", base.HEX, FRAME_TYPES),
    latest = ProtoField.uint64("lasthop_srp.ack.latest", "Latest number received"),
    arrival = ProtoField.uint32("lasthop_srp.ack.arrival", "Arrival (us modulo 2^32)"),
    delay = ProtoField.uint64("lasthop_srp.ack.delay", "Held back (us)"),
    span = ProtoField.uint64("lasthop_srp.ack.span", "Span"),
    behind = ProtoField.uint64("lasthop_srp.ack.behind", "Latest less last in sequence"),
    first = ProtoField.uint64("lasthop_srp.ack.first", "First number spoken of"),
    in_sequence = ProtoField.uint64("lasthop_srp.ack.in_sequence", "Last in sequence"),
    bitmap = ProtoField.bytes("lasthop_srp.ack.bitmap", "Bitmap of what is missing"),
    missing = ProtoField.uint32("lasthop_srp.ack.missing", "Numbers missing"),
    number = ProtoField.uint64("lasthop_srp.floor", "Floor"),
    credit = ProtoField.uint64("lasthop_srp.credit", "Bytes in all"),
    stream = ProtoField.uint64("lasthop_srp.stream", "Stream"),
    limit = ProtoField.uint64("lasthop_srp.stream.limit", "First offset that may not be sent"),
    released = ProtoField.uint64("lasthop_srp.stream.released", "First offset that is to be kept"),
    offset = ProtoField.uint64("lasthop_srp.stream.offset", "Offset"),
    len = ProtoField.uint64("lasthop_srp.stream.len", "Length"),
    fin = ProtoField.bool("lasthop_srp.stream.fin", "Last bytes of the stream"),
    data = ProtoField.bytes("lasthop_srp.stream.data", "Bytes"),
    code = ProtoField.uint64("lasthop_srp.code", "Code"),
    size = ProtoField.uint64("lasthop_srp.size", "Bytes that the sender had sent"),
    priority = ProtoField.uint64("lasthop_srp.priority", "Priority"),
    client = ProtoField.uint64("lasthop_srp.client", "Host"),
    policy = ProtoField.uint64("lasthop_srp.policy", "Policy"),
    path = ProtoField.uint64("lasthop_srp.path", "Path"),
    cost = ProtoField.uint64("lasthop_srp.path.cost", "Cost"),
    below = ProtoField.uint64(
        "lasthop_srp.path.below", "Helps below (bit/s) those that cost less"),
    packet = ProtoField.uint64("lasthop_srp.packet", "Packet"),
    packet_flow = ProtoField.uint64("lasthop_srp.packet.flow", "Flow"),
    packet_after = ProtoField.uint64(
        "lasthop_srp.packet.after", "Numbers back to the one to be delivered first"),
    packet_before = ProtoField.uint64("lasthop_srp.packet.before", "To be delivered first"),
    packet_patience = ProtoField.uint64("lasthop_srp.packet.patience", "Patience (ms)"),
    packet_ce = ProtoField.bool("lasthop_srp.packet.ce", "Congestion was met"),
    packet_distance = ProtoField.uint64(
        "lasthop_srp.packet.distance", "Numbers back to the one with its headers"),
    packet_headers = ProtoField.uint64("lasthop_srp.packet.headers", "Has the same headers"),
    packet_offset = ProtoField.uint64("lasthop_srp.packet.offset", "Offset"),
    packet_total = ProtoField.uint64("lasthop_srp.packet.total", "Bytes of the whole packet"),
    packet_len = ProtoField.uint64("lasthop_srp.packet.len", "Length"),
    packet_data = ProtoField.bytes("lasthop_srp.packet.data", "Bytes"),
}
srp.fields = s

local sx = {
    unknown = ProtoExpert.new(
        "lasthop_srp.unknown_frame", "Unknown frame", GROUP.MALFORMED, SEVERITY.ERROR),
    malformed = ProtoExpert.new(
        "lasthop_srp.bad_frame", "Frame cut short or contradicting itself", GROUP.MALFORMED,
        SEVERITY.ERROR),
    inner = ProtoExpert.new(
        "lasthop_srp.bad_packet", "No whole IP packet, though it begins like one", GROUP.MALFORMED,
        SEVERITY.WARN),
    gap = ProtoExpert.new("lasthop_srp.gap", "Numbers are missing", GROUP.SEQUENCE, SEVERITY.NOTE),
}
srp.experts = sx

-- A variable-length integer (RFC 9000 section 16) at `at`: its value and its length, or nil.
local function varint(tvb, at)
    if at >= tvb:len() then
        return nil
    end
    local len = 2 ^ math.floor(tvb(at, 1):uint() / 64)
    -- Whole numbers are not all of one kind in Lua 5.4.
    len = math.floor(len)
    if at + len > tvb:len() then
        return nil
    end
    local value = tvb(at, len):bitfield(2, len * 8 - 2)
    return type(value) == "number" and UInt64.new(value) or value, len
end

-- Adds a variable-length integer; where it ends and what it is, or nil.
local function add_varint(tree, field, tvb, at)
    if not at then
        return nil
    end
    local value, len = varint(tvb, at)
    if not value then
        return nil
    end
    tree:add(field, tvb(at, len), value)
    return at + len, value
end

local function bits_set(bytes, bits)
    local count = 0
    for bit = 0, bits - 1 do
        local byte = bytes:byte(math.floor(bit / 8) + 1)
        if math.floor(byte / 2 ^ (bit % 8)) % 2 == 1 then
            count = count + 1
        end
    end
    return count
end

local function add_ack(tree, tvb, start)
    local at, latest = add_varint(tree, s.latest, tvb, start)
    if not at or at + 4 > tvb:len() then
        return nil
    end
    tree:add(s.arrival, tvb(at, 4))
    at = add_varint(tree, s.delay, tvb, at + 4)
    local span, behind
    at, span = add_varint(tree, s.span, tvb, at)
    at, behind = add_varint(tree, s.behind, tvb, at)
    if not at or span > UInt64.new(MAX_ACK_SPAN) or span > latest or behind > latest
        or behind > span + UInt64.new(1) then
        return nil
    end
    tree:add(s.first, tvb(start, at - start), latest - span):set_generated()
    tree:add(s.in_sequence, tvb(start, at - start), latest - behind):set_generated()
    local bits = math.max(behind:tonumber() - 2, 0)
    local len = math.floor((bits + 7) / 8)
    if at + len > tvb:len() then
        return nil
    end
    local missing = behind:tonumber() >= 2 and 1 or 0
    if len > 0 then
        tree:add(s.bitmap, tvb(at, len))
        missing = missing + bits_set(tvb:raw(at, len), math.floor(bits))
    end
    tree:add(s.missing, tvb(start, at + len - start), missing):set_generated()
    if missing > 0 then
        tree:add_proto_expert_info(sx.gap, missing .. " missing")
    end
    return at + len
end

local function add_stream(tree, tvb, at, kind)
    at = add_varint(tree, s.stream, tvb, at)
    at = add_varint(tree, s.offset, tvb, at)
    if not at then
        return nil
    end
    tree:add(s.fin, tvb(at, 0), kind % 2 == 1):set_generated()
    local len = tvb:len() - at
    if kind >= 0x12 then
        local value
        at, value = add_varint(tree, s.len, tvb, at)
        if not at or value > UInt64.new(tvb:len() - at) then
            return nil
        end
        len = value:tonumber()
    end
    if len > 0 then
        tree:add(s.data, tvb(at, len))
    end
    return at + len
end

-- What a packet holds: shown as the IP packet that it most likely is, below the tree of frames.
local function add_packet_data(tree, tvb, pinfo, root)
    local version = tvb:len() > 0 and math.floor(tvb(0, 1):uint() / 16)
    local name = version == 4 and "ip" or version == 6 and "ipv6"
    tree:add(s.packet_data, tvb)
    -- A packet that is cut short or damaged within must not end the reading of what follows.
    if name and not pcall(function() Dissector.get(name):call(tvb:tvb(), pinfo, root) end) then
        tree:add_proto_expert_info(sx.inner)
    end
end

local function add_packet(tree, tvb, at, kind, pinfo, root)
    local start, number, after, distance, offset, total, len = at, nil, nil, nil, nil, nil, nil
    at, number = add_varint(tree, s.packet, tvb, at)
    at = add_varint(tree, s.packet_flow, tvb, at)
    at, after = add_varint(tree, s.packet_after, tvb, at)
    at = add_varint(tree, s.packet_patience, tvb, at)
    local part, without = kind % 2 == 1, kind >= 0x1c
    if without then
        at, distance = add_varint(tree, s.packet_distance, tvb, at)
        if not at or distance == UInt64.new(0) or distance >= number then
            return nil
        end
    end
    if part then
        at, offset = add_varint(tree, s.packet_offset, tvb, at)
        at, total = add_varint(tree, s.packet_total, tvb, at)
    end
    at, len = add_varint(tree, s.packet_len, tvb, at)
    if not at or after >= number or len == UInt64.new(0) or len > UInt64.new(tvb:len() - at) then
        return nil
    end
    offset = offset or UInt64.new(0)
    total = total or len
    local most = UInt64.new(PACKET_MAX)
    if total > most or offset > total or len > total - offset then
        return nil
    end
    tree:add(s.packet_ce, tvb(start, 0), kind % 4 >= 2):set_generated()
    if without then
        tree:add(s.packet_headers, tvb(start, 0), number - distance):set_generated()
    end
    if after > UInt64.new(0) then
        tree:add(s.packet_before, tvb(start, 0), number - after):set_generated()
    end
    local data = tvb(at, len:tonumber())
    if part or without then
        tree:add(s.packet_data, data)
    else
        add_packet_data(tree, data, pinfo, root)
    end
    return at + len:tonumber()
end

-- The fields of frames that have nothing but numbers.
local NUMBERS = {
    [0x01] = {},
    [0x03] = { s.number },
    [0x04] = {},
    [0x05] = { s.credit },
    [0x06] = { s.stream, s.limit },
    [0x07] = {},
    [0x08] = { s.stream },
    [0x09] = { s.stream, s.code, s.size },
    [0x0a] = { s.code },
    [0x0b] = { s.stream, s.priority },
    [0x0c] = { s.stream, s.client },
    [0x0d] = { s.stream, s.policy },
    [0x0e] = { s.path, s.cost, s.below },
    [0x0f] = { s.stream, s.released },
}

local function add_fields(tree, tvb, at, kind, pinfo, root)
    if kind == 0x02 then
        return add_ack(tree, tvb, at)
    elseif kind >= 0x14 then
        return add_packet(tree, tvb, at, kind, pinfo, root)
    elseif kind >= 0x10 then
        return add_stream(tree, tvb, at, kind)
    elseif kind == 0x00 then
        return tvb:len()
    end
    for _, field in ipairs(NUMBERS[kind]) do
        at = add_varint(tree, field, tvb, at)
    end
    return at
end

function srp.dissector(tvb, pinfo, root)
    local tree = root:add(srp, tvb())
    local names, at = {}, 0
    while at < tvb:len() do
        local kind = tvb(at, 1):uint()
        local frame = tree:add(s.frame, tvb(at, 1))
        local name = FRAME_TYPES[kind]
        if not name then
            frame:add_proto_expert_info(sx.unknown, string.format("type 0x%02x", kind))
            table.insert(names, "unknown frame")
            break
        end
        table.insert(names, name)
        local ends = add_fields(frame, tvb, at + 1, kind, pinfo, root)
        if not ends then
            frame:add_proto_expert_info(sx.malformed)
            break
        end
        frame:set_len(ends - at)
        at = ends
    end
    -- What a packet holds has written there, too.
    pinfo.cols.protocol = "SRP"
    pinfo.cols.info = #names > 0 and table.concat(names, ", ") or "No frames"
    return tvb:len()
end

-- Hop datagrams

local hop = Proto("lasthop", "lasthop hop datagram")

local KINDS = {
    [0] = "Data",
    [1] = "Handshake init",
    [2] = "Handshake reply",
    [3] = "Plain init",
    [4] = "Plain reply",
    [5] = "Unknown",
    [6] = "Cookie reply",
    [7] = "Path challenge",
    [8] = "Path response",
    [9] = "Transit",
    [10] = "Transit challenge",
    [11] = "Transit proof",
}
-- The shortest and the longest of each kind.
local BOUNDS = {
    [0] = { 10, 65535 }, { 144, 399 }, { 84, 339 }, { 48, 303 }, { 20, 275 }, { 6, 6 }, { 46, 46 },
    { 30, 30 }, { 30, 30 }, { 7, 65535 }, { 22, 22 }, { 22, 22 },
}
local TAG_LEN = 16

local h = {
    frame_len = ProtoField.uint16("lasthop.frame_len", "Length of the datagram"),
    version = ProtoField.uint8("lasthop.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("lasthop.kind", "Kind", base.DEC, KINDS, 0x0f),
    path = ProtoField.uint8("lasthop.path", "Path"),
    receiver = ProtoField.uint32("lasthop.receiver", "Receiver", base.HEX),
    number = ProtoField.uint32("lasthop.number", "Packet number, low 32 bits"),
    sealed = ProtoField.bool("lasthop.sealed", "Sealed"),
    ciphertext = ProtoField.bytes("lasthop.ciphertext", "Ciphertext"),
    tag = ProtoField.bytes("lasthop.tag", "Tag"),
    ephemeral = ProtoField.bytes("lasthop.ephemeral", "Ephemeral public key"),
    static = ProtoField.bytes("lasthop.static", "Static public key, encrypted"),
    sealed_hello = ProtoField.bytes("lasthop.sealed_hello", "Hello, encrypted"),
    mac = ProtoField.bytes("lasthop.mac", "Keyed hash"),
    cookie_mac = ProtoField.bytes("lasthop.cookie_mac", "Hash keyed with the cookie"),
    nonce = ProtoField.bytes("lasthop.nonce", "Nonce"),
    cookie = ProtoField.bytes("lasthop.cookie", "Cookie, encrypted"),
    token = ProtoField.bytes("lasthop.token", "Token"),
    public = ProtoField.bytes("lasthop.public", "Public key, as claimed"),
    hello_version = ProtoField.uint8("lasthop.hello.version", "Version"),
    fast_aes = ProtoField.bool("lasthop.hello.fast_aes", "AES is fast here", 8, nil, 0x01),
    hello_receiver = ProtoField.uint32("lasthop.hello.receiver", "Wants to receive as", base.HEX),
    stamp = ProtoField.uint64("lasthop.hello.stamp", "Stamp"),
    limits = ProtoField.bytes("lasthop.hello.limits", "Limits"),
    padding = ProtoField.bytes("lasthop.padding", "Padding"),
}
hop.fields = h

local hx = {
    truncated = ProtoExpert.new(
        "lasthop.bad_length", "Impossible length", GROUP.MALFORMED, SEVERITY.ERROR),
    version = ProtoExpert.new(
        "lasthop.bad_version", "Unknown version", GROUP.MALFORMED, SEVERITY.ERROR),
    kind = ProtoExpert.new("lasthop.bad_kind", "Unknown kind", GROUP.MALFORMED, SEVERITY.ERROR),
    plain = ProtoExpert.new(
        "lasthop.plain", "An association without a seal: no secrecy, no authenticity",
        GROUP.SECURITY, SEVERITY.WARN),
}
hop.experts = hx

local GUESS, SEALED, PLAIN = 0, 1, 2
hop.prefs.port = Pref.uint("UDP port", UDP_PORT, "Where bases listen")
hop.prefs.inside = Pref.enum(
    "Data is", GUESS, "What data datagrams hold where no plain handshake was captured", {
        { 1, "known by the handshake", GUESS },
        { 2, "sealed", SEALED },
        { 3, "not sealed", PLAIN },
    }, false)

-- The receiver numbers of associations that were opened without a seal.
local plain_receivers = {}

function hop.init()
    plain_receivers = {}
end

local function add_hello(tree, tvb, at)
    tree:add(h.hello_version, tvb(at, 1))
    tree:add(h.fast_aes, tvb(at + 1, 1))
    tree:add(h.hello_receiver, tvb(at + 2, 4))
    tree:add(h.stamp, tvb(at + 6, 8))
    if tvb:len() > at + 14 then
        tree:add(h.limits, tvb(at + 14))
    end
    tree:add_proto_expert_info(hx.plain)
    plain_receivers[tvb(at + 2, 4):uint()] = true
end

local function add_handshake(tree, tvb, kind)
    local len = tvb:len()
    if kind == 1 then
        tree:add(h.ephemeral, tvb(2, 32))
        tree:add(h.static, tvb(34, 48))
        tree:add(h.sealed_hello, tvb(82, len - 32 - 82))
        tree:add(h.mac, tvb(len - 32, 16))
        tree:add(h.cookie_mac, tvb(len - 16, 16))
    elseif kind == 2 then
        tree:add(h.receiver, tvb(2, 4))
        tree:add(h.ephemeral, tvb(6, 32))
        tree:add(h.sealed_hello, tvb(38, len - 16 - 38))
        tree:add(h.mac, tvb(len - 16, 16))
    elseif kind == 3 then
        tree:add(h.public, tvb(2, 32))
        add_hello(tree, tvb, 34)
    elseif kind == 4 then
        tree:add(h.receiver, tvb(2, 4))
        add_hello(tree, tvb, 6)
    elseif kind == 5 then
        tree:add(h.receiver, tvb(2, 4))
    elseif kind == 6 then
        tree:add(h.nonce, tvb(2, 12))
        tree:add(h.cookie, tvb(14, 32))
    elseif kind < 9 then
        tree:add(h.receiver, tvb(2, 4))
        tree:add(h.token, tvb(6, 8))
        tree:add(h.mac, tvb(14, 16))
    else
        tree:add(h.receiver, tvb(2, 4))
        tree:add(h.mac, tvb(6, 16))
    end
end

local function is_sealed(receiver)
    if hop.prefs.inside == GUESS then
        return not plain_receivers[receiver]
    end
    return hop.prefs.inside == SEALED
end

local function add_datagram_data(tree, tvb, pinfo, root)
    tree:add(h.receiver, tvb(2, 4))
    tree:add(h.number, tvb(6, 4))
    local sealed = is_sealed(tvb(2, 4):uint())
    tree:add(h.sealed, tvb(0, 1), sealed):set_generated()
    pinfo.cols.info = string.format(
        "Data, receiver 0x%08x, number %d", tvb(2, 4):uint(), tvb(6, 4):uint())
    local body = tvb:len() - 10
    if not sealed then
        if body > 0 then
            local inside = tvb(10):tvb()
            local dissector = is_whole_packet(inside) and mobile or srp
            dissector.dissector(inside, pinfo, root)
        end
        return
    end
    if body < TAG_LEN then
        tree:add_proto_expert_info(hx.truncated, "no room for the tag")
        return
    end
    if body > TAG_LEN then
        tree:add(h.ciphertext, tvb(10, body - TAG_LEN))
    end
    tree:add(h.tag, tvb(10 + body - TAG_LEN, TAG_LEN))
end

local function dissect_hop(tvb, pinfo, root)
    pinfo.cols.protocol = "lasthop"
    local tree = root:add(hop, tvb())
    local len = tvb:len()
    if len < 2 then
        tree:add_proto_expert_info(hx.truncated, "only " .. len .. " bytes")
        return
    end
    local version, kind = math.floor(tvb(0, 1):uint() / 16), tvb(0, 1):uint() % 16
    tree:add(h.version, tvb(0, 1))
    tree:add(h.kind, tvb(0, 1))
    tree:add(h.path, tvb(1, 1))
    pinfo.cols.info = KINDS[kind] or ("Kind " .. kind)
    if version ~= 1 then
        tree:add_proto_expert_info(hx.version, "version " .. version)
    elseif not KINDS[kind] then
        tree:add_proto_expert_info(hx.kind, "kind " .. kind)
    elseif len < BOUNDS[kind][1] or len > BOUNDS[kind][2] then
        tree:add_proto_expert_info(hx.truncated, string.format(
            "%d bytes, must have %d to %d", len, BOUNDS[kind][1], BOUNDS[kind][2]))
    elseif kind == 0 then
        add_datagram_data(tree, tvb, pinfo, root)
    elseif kind == 9 then
        tree:add(h.receiver, tvb(2, 4))
        hop.dissector(tvb(6):tvb(), pinfo, root)
        pinfo.cols.info:prepend("Transit, ")
    else
        add_handshake(tree, tvb, kind)
    end
end

-- What shares a UDP port is told apart by its first byte.
function hop.dissector(tvb, pinfo, root)
    if tvb:len() > 0 and is_mobile_tcp(tvb(0, 1):uint()) then
        return mobile.dissector(tvb, pinfo, root)
    end
    dissect_hop(tvb, pinfo, root)
    return tvb:len()
end

-- What two agents at the ends of a hop send each other.
local agents = Proto("lasthop_agents", "lasthop agents")

local SUBTYPE_AGENTS = 0xff
local AGENT_KINDS = { [1] = "Hello", [2] = "Message", [3] = "Numbered packet" }

local g = {
    version = ProtoField.uint8("lasthop_agents.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("lasthop_agents.kind", "Kind", base.DEC, AGENT_KINDS, 0x0f),
    epoch = ProtoField.uint32("lasthop_agents.epoch", "Epoch", base.HEX),
    heard = ProtoField.uint32("lasthop_agents.heard", "Hears epoch", base.HEX),
    message = ProtoField.bytes("lasthop_agents.message", "Message"),
    number = ProtoField.uint32("lasthop_agents.number", "Number"),
    ethertype = ProtoField.uint16("lasthop_agents.ethertype", "EtherType of the packet", base.HEX),
}
agents.fields = g

local gx = {
    malformed = ProtoExpert.new(
        "lasthop_agents.malformed", "Not understood", expert.group.MALFORMED, expert.severity.ERROR),
}
agents.experts = gx

function agents.dissector(tvb, pinfo, root)
    pinfo.cols.protocol = "lasthop agents"
    local len = tvb:len()
    local tree = root:add(agents, tvb())
    local kind = len > 1 and tvb(1, 1):bitfield(4, 4) or 0
    local needed = ({ 10, 2, 8 })[kind]
    if not needed or len < needed then
        tree:add_proto_expert_info(gx.malformed)
        return len
    end
    tree:add(g.version, tvb(1, 1))
    tree:add(g.kind, tvb(1, 1))
    pinfo.cols.info = AGENT_KINDS[kind]
    if kind == 1 then
        tree:add(g.epoch, tvb(2, 4))
        tree:add(g.heard, tvb(6, 4))
    elseif kind == 2 and len > 2 then
        tree:add(g.message, tvb(2))
    elseif kind == 3 then
        tree:add(g.number, tvb(2, 4))
        tree:add(g.ethertype, tvb(6, 2))
        if len > 8 then
            DissectorTable.get("ethertype"):try(tvb(6, 2):uint(), tvb(8):tvb(), pinfo, root)
        end
    end
    return len
end

-- On Ethernet a length comes first, since short frames are padded.
local framed = Proto("lasthop_frame", "lasthop hop datagram on Ethernet")

function framed.dissector(tvb, pinfo, root)
    if tvb:len() > 0 and tvb(0, 1):uint() == SUBTYPE_AGENTS then
        return agents.dissector(tvb, pinfo, root)
    end
    pinfo.cols.protocol = "lasthop"
    local tree = root:add(framed, tvb(0, math.min(2, tvb:len())))
    if tvb:len() < 2 then
        tree:add_proto_expert_info(hx.truncated, "no length")
        return tvb:len()
    end
    local len = tvb(0, 2):uint()
    local item = tree:add(h.frame_len, tvb(0, 2))
    if len > tvb:len() - 2 then
        item:add_proto_expert_info(hx.truncated, string.format(
            "says %d bytes, %d follow", len, tvb:len() - 2))
        pinfo.cols.info = "Malformed: the frame is shorter than its length"
        return tvb:len()
    end
    if len > 0 then
        hop.dissector(tvb(2, len):tvb(), pinfo, root)
    end
    if tvb:len() > len + 2 then
        root:add(h.padding, tvb(len + 2))
    end
    return tvb:len()
end

local udp_table = DissectorTable.get("udp.port")
local ethertype_table = DissectorTable.get("ethertype")
udp_table:add(udp_port, hop)
ethertype_table:add(ETHERTYPE_BARE, mobile)
ethertype_table:add(ETHERTYPE_HOP, framed)

function hop.prefs_changed()
    if hop.prefs.port ~= udp_port then
        udp_table:remove(udp_port, hop)
        udp_port = hop.prefs.port
        udp_table:add(udp_port, hop)
    end
end
