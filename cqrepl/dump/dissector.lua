-- Wireshark dissector for queue replication over framed binary wire.
-- Printed by `wire-dump --dissector` from the tables of its codec; do not edit.
--
--   wireshark -X lua_script:cqrepl.lua capture.pcap
--   tshark -X lua_script:cqrepl.lua -r capture.pcap -Y 'cqrepl.index == 0x451600000000'
--
-- A connection is recognised by its first frame, the UberHandler; without it use "Decode As".
-- Filters: cqrepl.csp cqrepl.cid cqrepl.handler cqrepl.index cqrepl.ack cqrepl.ns cqrepl.name
--          cqrepl.kind cqrepl.length cqrepl.event_bytes cqrepl.run_count cqrepl.run_bytes cqrepl.oversize cqrepl.unknown_cid

--@TABLES@

local proto = Proto("cqrepl", "Chronicle queue replication")
proto.prefs.length_max = Pref.uint("Longest frame", LENGTH_MAX,
  "Frames that announce a longer body are not put together")

local f = {
  header = ProtoField.uint32("cqrepl.header", "Header", base.HEX),
  kind = ProtoField.string("cqrepl.kind", "Kind"),
  length = ProtoField.uint32("cqrepl.length", "Length"),
  name = ProtoField.string("cqrepl.name", "First name"),
  csp = ProtoField.string("cqrepl.csp", "csp"),
  cid = ProtoField.int64("cqrepl.cid", "cid"),
  handler = ProtoField.string("cqrepl.handler", "Handler"),
  index = ProtoField.uint64("cqrepl.index", "Index", base.HEX),
  ack = ProtoField.uint64("cqrepl.ack", "Acknowledged index", base.HEX),
  ns = ProtoField.int64("cqrepl.ns", "Nano time of the source"),
  event_bytes = ProtoField.uint32("cqrepl.event_bytes", "Bytes of payload"),
  run_count = ProtoField.uint32("cqrepl.run_count", "Excerpts in a run"),
  run_bytes = ProtoField.uint32("cqrepl.run_bytes", "Bytes of a run"),
  body = ProtoField.bytes("cqrepl.body", "Body"),
}
proto.fields = f
local e = {
  oversize = ProtoExpert.new("cqrepl.oversize", "Frame longer than allowed",
    expert.group.MALFORMED, expert.severity.ERROR),
  unknown_cid = ProtoExpert.new("cqrepl.unknown_cid", "No handler is registered for this cid",
    expert.group.SEQUENCE, expert.severity.WARN),
  header = ProtoExpert.new("cqrepl.bad_header", "No header of a complete document",
    expert.group.MALFORMED, expert.severity.ERROR),
}
proto.experts = e

local stream_of = Field.new("tcp.stream")

-- reading: each function takes a buffer, a position and an end; nil says that it cannot be read

local function stop_bit(b, at, stop)
  local value, scale = 0, 1
  for _ = 1, 10 do
    if at >= stop then return nil end
    local byte = b(at, 1):uint()
    at = at + 1
    if byte < 0x80 then
      if byte == 0 and scale > 1 then return -1 - value, at end
      return value + byte * scale, at
    end
    value = value + (byte - 0x80) * scale
    scale = scale * 128
  end
  return nil
end

local function skip_filler(b, at, stop)
  while at < stop do
    local code = b(at, 1):uint()
    if code == PADDING then
      at = at + 1
    elseif code == PADDING32 then
      if at + 5 > stop then return stop end
      at = at + 5 + b(at + 1, 4):le_uint()
    elseif code == COMMENT then
      local length, from = stop_bit(b, at + 1, stop)
      if not length then return stop end
      at = from + math.max(length, 0)
    else
      return at
    end
  end
  return stop
end

-- a length and the position behind it
local function block(b, at, stop)
  if at >= stop then return nil end
  local bytes = BLOCK_LENGTH[b(at, 1):uint()]
  if not bytes or at + 1 + bytes > stop then return nil end
  local from = at + 1 + bytes
  local length = b(at + 1, bytes):le_uint()
  if from + length > stop then return nil end
  return length, from
end

local function prefixed(b, at, stop)
  local length, from = stop_bit(b, at + 1, stop)
  if not length or length < 0 or from + length > stop then return nil end
  return length, from
end

local function range_string(b, from, length)
  return length == 0 and "" or b(from, length):string(ENC_UTF_8)
end

local function name(b, at, stop)
  at = skip_filler(b, at, stop)
  if at >= stop then return nil end
  local code = b(at, 1):uint()
  if code >= FIELD_NAME0 and code < STRING0 then
    local length = code - FIELD_NAME0
    if at + 1 + length > stop then return nil end
    return range_string(b, at + 1, length), at + 1 + length
  end
  if code == FIELD_NUMBER then
    local number, from = stop_bit(b, at + 1, stop)
    if not number then return nil end
    return tostring(number), from
  end
  if not NAME_CODES[code] then return nil end
  local length, from = prefixed(b, at, stop)
  if not length then return nil end
  return range_string(b, from, length), from + length
end

local function type_prefix(b, at, stop)
  at = skip_filler(b, at, stop)
  if at >= stop or b(at, 1):uint() ~= TYPE_PREFIX then return nil, at end
  local length, from = prefixed(b, at, stop)
  if not length then return nil, at end
  return range_string(b, from, length), from + length
end

-- the value, the bytes that hold it, and the position behind it
local function integer(b, at, stop)
  at = skip_filler(b, at, stop)
  if at >= stop then return nil end
  local code = b(at, 1):uint()
  if code < 0x80 then return Int64(code), b(at, 1), at + 1 end
  local form = FIXED_WIDTH[code]
  if form then
    if at + 1 + form.bytes > stop then return nil end
    local range = b(at + 1, form.bytes)
    local value
    if form.kind == "float" then
      local float = range:le_float()
      value = Int64.new(string.format("%.0f", float < 0 and math.ceil(float) or math.floor(float)))
    elseif form.kind == "signed" then
      value = form.bytes == 8 and range:le_int64() or Int64(range:le_int())
    else
      value = Int64.new(tostring(range:le_uint()))
    end
    return value, range, at + 1 + form.bytes
  end
  local scale = STOP_BIT_SCALE[code]
  if scale then
    local number, from = stop_bit(b, at + 1, stop)
    if not number then return nil end
    local whole = number / scale
    whole = whole < 0 and math.ceil(whole) or math.floor(whole)
    return Int64.new(string.format("%.0f", whole)), b(at + 1, from - at - 1), from
  end
  return nil
end

local function text(b, at, stop)
  at = skip_filler(b, at, stop)
  if at >= stop then return nil end
  local code = b(at, 1):uint()
  if code >= STRING0 then
    local length = code - STRING0
    if at + 1 + length > stop then return nil end
    return range_string(b, at + 1, length), b(at, 1 + length), at + 1 + length
  end
  if code ~= STRING_ANY then return nil end
  local length, from = prefixed(b, at, stop)
  if not length then return nil end
  return range_string(b, from, length), b(at, from + length - at), from + length
end

-- the position behind a value; nil where there is none
local function skip_value(b, at, stop)
  local _
  repeat
    _, at = type_prefix(b, at, stop)
  until not _
  if at >= stop then return nil end
  local code = b(at, 1):uint()
  if code < 0x80 or ONE_BYTE[code] then return at + 1 end
  if BLOCK_LENGTH[code] then
    local length, from = block(b, at, stop)
    return length and from + length
  end
  if code >= STRING0 then
    return at + 1 + code - STRING0
  end
  if FIXED_WIDTH[code] then return at + 1 + FIXED_WIDTH[code].bytes end
  if STOP_BIT_SCALE[code] then
    local _, from = stop_bit(b, at + 1, stop)
    return from
  end
  if LENGTH_PREFIXED[code] then
    local length, from = prefixed(b, at, stop)
    return length and from + length
  end
  return nil
end

-- the state of a connection, by its number: per direction what was registered and is selected

local connections, results = {}, {}

function proto.init()
  connections, results = {}, {}
end

local function direction(pinfo)
  local number = stream_of()
  local key = number and number.value or 0
  local ends = tostring(pinfo.src) .. " " .. pinfo.src_port
  connections[key] = connections[key] or {}
  local connection = connections[key]
  connection[ends] = connection[ends] or { handlers = {} }
  return connection[ends]
end

local function route(b, said)
  local at, stop = HEADER_BYTES, b:len()
  local found = {}
  while at and at < stop do
    local key, from = name(b, at, stop)
    if not key then break end
    if key == CSP and not found.csp then
      found.csp, found.csp_range = text(b, from, stop)
    elseif key == CID and not found.cid then
      found.cid, found.cid_range = integer(b, from, stop)
    elseif key == HANDLER and not found.handler then
      local type_name = type_prefix(b, from, stop)
      found.has_handler = true
      found.handler = type_name and (ALIASES[type_name] or type_name)
    end
    at = skip_value(b, from, stop)
  end
  said.csp, said.cid, said.handler = found.csp, found.cid, found.handler
  said.csp_range, said.cid_range = found.csp_range, found.cid_range
  return found
end

local function register(here, said, found)
  if found.has_handler then
    if not said.cid and not said.csp and here.announced then
      said.csp, said.cid = here.announced.csp, here.announced.cid
    end
    here.announced = nil
    if said.cid then
      local key = tostring(said.cid)
      here.selected = said.cid
      here.handlers[key] = here.handlers[key] or { csp = said.csp, handler = said.handler }
    end
  elseif said.cid then
    here.selected = said.cid
    if said.csp then here.announced = { csp = said.csp, cid = said.cid } end
  end
end

local function resolve(here, said)
  if not here.selected then return end
  said.cid = here.selected
  local known = here.handlers[tostring(here.selected)]
  if known then
    said.csp, said.handler = known.csp, known.handler
  else
    said.unknown = true
  end
end

-- what a frame says, found out when it is first seen; later visits take what was found
local function understand(b, pinfo)
  local said = {}
  local stop = b:len()
  local at
  said.name, at = name(b, HEADER_BYTES, stop)
  local is_routing = said.name == CSP or said.name == CID or said.name == HANDLER
  if not is_routing then
    local here = direction(pinfo)
    resolve(here, said)
  else
    local here = direction(pinfo)
    local found = route(b, said)
    register(here, said, found)
    if not found.has_handler and not said.csp and said.cid then resolve(here, said) end
  end
  if said.name == EVENT then
    local _, from = type_prefix(b, at, stop)
    local length, inside = block(b, from, stop)
    local inner = length and inside + length or stop
    local behind
    said.index, said.index_range, behind = integer(b, inside or from, inner)
    if behind then
      behind = skip_filler(b, behind, inner)
      local bytes, payload = block(b, behind, inner)
      if bytes then
        said.event_bytes = bytes
        said.ns, said.ns_range = integer(b, payload + bytes, inner)
        if not said.ns then said.ns = Int64(0) end
      else
        said.index = nil
      end
    end
  elseif said.name == RUN then
    local length, inside = block(b, at, stop)
    if length then
      local behind, count
      said.index, said.index_range, behind = integer(b, inside, stop)
      if behind then count, said.count_range, behind = integer(b, behind, stop) end
      if behind then said.ns, said.ns_range, behind = integer(b, behind, stop) end
      local bytes = behind and block(b, behind, stop)
      if bytes then
        said.count = count:tonumber()
        said.run_bytes = bytes
      else
        said.index, said.ns = nil, nil
      end
    end
  elseif said.name == ACKNOWLEDGED then
    local behind
    said.ack, said.ack_range, behind = integer(b, at, stop)
    said.ns = said.ack and Int64(0)
    while behind and behind < stop do
      local key, from = name(b, behind, stop)
      if not key then break end
      if key == NANOS then
        said.ns, said.ns_range = integer(b, from, stop)
        break
      end
      behind = skip_value(b, from, stop)
    end
  end
  return said
end

local function show(tree, b, said, summary)
  local function add(field, value, range)
    if value ~= nil then tree:add(field, range or b(0, b:len()), value) end
  end
  add(f.name, said.name)
  add(f.csp, said.csp, said.csp_range)
  add(f.cid, said.cid, said.cid_range)
  add(f.handler, said.handler)
  add(f.index, said.index and UInt64.new(said.index:lower(), said.index:higher()), said.index_range)
  add(f.ack, said.ack and UInt64.new(said.ack:lower(), said.ack:higher()), said.ack_range)
  add(f.event_bytes, said.event_bytes)
  add(f.run_count, said.count, said.count_range)
  add(f.run_bytes, said.run_bytes)
  add(f.ns, said.ns, said.ns_range)
  if said.unknown then tree:add_proto_expert_info(e.unknown_cid) end
  if said.name then summary[#summary + 1] = said.name end
  local index = said.index or said.ack
  if index then summary[#summary + 1] = "0x" .. index:tohex():gsub("^0+", "") end
  if said.handler then summary[#summary + 1] = said.handler end
end

local function dissect_frame(b, pinfo, root)
  pinfo.cols.protocol = "CQREPL"
  local word = b(0, HEADER_BYTES):le_uint()
  local length = word % (LENGTH_MASK + 1)
  local is_metadata = math.floor(word / META_DATA) % 2 == 1
  local tree = root:add(proto, b(0, b:len()))
  local kind = is_metadata and "meta-data" or "data"
  tree:append_text(", " .. kind .. ", " .. length .. " bytes")
  tree:add_le(f.header, b(0, HEADER_BYTES))
  tree:add(f.length, b(0, HEADER_BYTES), length)
  if word == 0 or word >= NOT_COMPLETE then
    tree:add_proto_expert_info(e.header)
    return b:len()
  end
  if length > proto.prefs.length_max then
    tree:add_proto_expert_info(e.oversize)
    return b:len()
  end
  tree:add(f.kind, b(0, HEADER_BYTES), kind)
  if length > 0 then tree:add(f.body, b(HEADER_BYTES, length)) end
  local key = pinfo.number .. ":" .. b:offset() .. ":" .. b:len()
  local said = results[key]
  if not said or not pinfo.visited then
    said = understand(b, pinfo)
    -- ranges belong to this visit's buffer
    local kept = {}
    for field, value in pairs(said) do
      if not field:find("_range$") then kept[field] = value end
    end
    results[key] = kept
  end
  local summary = {}
  show(tree, b, said, summary)
  local line = table.concat(summary, " ")
  tree:append_text(", " .. line)
  pinfo.cols.info:append(line .. "; ")
  return b:len()
end

local function frame_length(b, _, offset)
  local word = b(offset, HEADER_BYTES):le_uint()
  local length = word % (LENGTH_MASK + 1)
  if word == 0 or word >= NOT_COMPLETE or length > proto.prefs.length_max then
    return b:len() - offset
  end
  return HEADER_BYTES + length
end

local function dissect(b, pinfo, root)
  pinfo.cols.info = ""
  dissect_tcp_pdus(b, root, HEADER_BYTES, frame_length, dissect_frame)
  return b:len()
end

proto.dissector = dissect

-- the first frame of a connection: handler: !...UberHandler
local function looks_like_us(b, pinfo, root)
  if b:len() < HEADER_BYTES + #HANDLER + 4 then return false end
  local word = b(0, HEADER_BYTES):le_uint()
  local length = word % (LENGTH_MASK + 1)
  if word == 0 or word >= NOT_COMPLETE or length > FIRST_MAX then return false end
  local key, at = name(b, HEADER_BYTES, b:len())
  if key ~= HANDLER then return false end
  local type_name = type_prefix(b, at, b:len())
  if not type_name or ALIASES[type_name] ~= UBER_HANDLER then return false end
  pinfo.conversation = proto
  dissect(b, pinfo, root)  -- not through the proto: one level deeper, nothing is put together
  return true
end

proto:register_heuristic("tcp", looks_like_us)
DissectorTable.get("tcp.port"):add_for_decode_as(proto)
