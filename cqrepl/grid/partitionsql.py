"""The partition of a key as PostgreSQL reckons it, in functions that are made in the database.

They say what `cqrepl.routing` says, for keys that are texts, whole numbers and bytes. PostgreSQL 15
has no CRC-32 of its own, and one of these calls takes microseconds: an expression index keeps what
it gives, so a preload finds the rows of a partition without a call for each row of the table.
"""

import re
from typing import Final

from cqrepl.grid.errors import GridRefused

PARTITION_FUNCTION: Final = "cq_partition"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_POLYNOMIAL: Final = 0xEDB88320


def _crc_table() -> str:
    found = []
    for each in range(256):
        for _ in range(8):
            each = each >> 1 ^ (_POLYNOMIAL if each & 1 else 0)
        found.append(str(each))
    return ",".join(found)


_TEXT: Final = """\
-- CRC-32, as of zlib
create or replace function cq_crc32(data bytea) returns bigint PLAIN
declare
  crcs constant bigint[] := '{CRCS}';
  crc bigint := 4294967295;
begin
  for i in 0 .. length(data) - 1 loop
    crc := crcs[((crc # get_byte(data, i)) & 255) + 1] # (crc >> 8);
  end loop;
  return crc # 4294967295;
end $cq$;

-- three bytes of UTF-8
create or replace function cq_wide(code int) returns bytea PLAIN
begin
  return decode(to_hex(((224 | (code >> 12)) << 16) | ((128 | ((code >> 6) & 63)) << 8)
    | 128 | (code & 63)), 'hex');
end $cq$;

-- a text as binary wire: a character beyond 16 bits is two surrogates
create or replace function cq_wire(key text) returns bytea PLAIN
declare
  data bytea := convert_to(key, 'UTF8');
  size bigint;
  head bytea := '\\xb8';
  part int;
begin
  if length(data) > length(key) then
    select string_agg(case when code > 65535
        then cq_wide(55232 + (code >> 10)) || cq_wide(56320 + (code & 1023))
        else convert_to(letter, 'UTF8') end, ''::bytea order by nth) into data
    from (select ascii(c), c, n from regexp_split_to_table(key, '') with ordinality each(c, n))
      letters(code, letter, nth);
  end if;
  size := length(data);
  if size < 32 then
    return set_byte('\\x00'::bytea, 0, 224 + size::int) || data;
  end if;
  loop
    part := (size & 127)::int;
    size := size >> 7;
    head := head || set_byte('\\x00'::bytea, 0, part + case when size > 0 then 128 else 0 end);
    exit when size = 0;
  end loop;
  return head || data;
end $cq$;

-- a whole number as binary wire: of the least width that holds it
create or replace function cq_wire(key bigint) returns bytea PLAIN
declare
  form int[] := case
    when key between 0 and 255 then '{161,1}'
    when key between 256 and 32767 then '{165,2}'
    when key between 32768 and 65535 then '{162,2}'
    when key between 65536 and 2147483647 then '{166,4}'
    when key between 2147483648 and 4294967295 then '{163,4}'
    when key >= 4294967296 then '{167,8}'
    when key >= -128 then '{164,1}'
    when key >= -32768 then '{165,2}'
    when key >= -2147483648 then '{166,4}'
    else '{167,8}' end;
  data bytea := set_byte('\\x00'::bytea, 0, form[1]);
begin
  for i in 0 .. form[2] - 1 loop
    data := data || set_byte('\\x00'::bytea, 0, ((key >> (8 * i)) & 255)::int);
  end loop;
  return data;
end $cq$;

-- bytes as binary wire
create or replace function cq_wire(key bytea) returns bytea PLAIN
declare
  size bigint := length(key) + 1;
  wide int := case when size < 256 then 0 when size < 65536 then 1 else 2 end;
  data bytea := set_byte('\\x00'::bytea, 0, 128 + wide);
begin
  for i in 0 .. (1 << wide) - 1 loop
    data := data || set_byte('\\x00'::bytea, 0, ((size >> (8 * i)) & 255)::int);
  end loop;
  return data || '\\x8a'::bytea || key;
end $cq$;
"""
_PLAIN: Final = "language plpgsql immutable strict parallel safe as $cq$"


def partition_sql(table: str, key: str, partitions: int) -> str:
    """The statements that a table of PostgreSQL needs before a map of so many partitions is loaded
    from it: the function, and an index of what it gives.

    Raises:
        GridRefused: a name that would need quotes.
    """
    for each in (*table.split("."), key):
        if not _NAME.fullmatch(each):
            raise GridRefused(f"expected a name of letters, digits and _, got {each[:80]!r}")
    overloads = "\n".join(_overload(kind) for kind in ("text", "bigint", "bytea"))
    name = f"{table.rpartition('.')[2]}_{PARTITION_FUNCTION}_{partitions}"
    index = f"create index if not exists {name} on {table}"
    functions = _TEXT.replace("CRCS", _crc_table()).replace("PLAIN", _PLAIN)
    return f"""{functions}
{overloads}
{index} ({PARTITION_FUNCTION}({key}, {partitions}), {key});
analyze {table};
"""


def _overload(kind: str) -> str:
    head = f"create or replace function {PARTITION_FUNCTION}(key {kind}, partitions int)"
    body = "begin return mod(cq_crc32(cq_wire(key)), partitions)::int; end $cq$;"
    return f"{head} returns int {_PLAIN} {body}"
