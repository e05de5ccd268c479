//! The names of types that mean something: to Java's dump, or to `wire.decode`.

/// Types that Java's dump resolves by these names.
const KNOWN_TYPES: [&str; 53] = [
    "!set",
    "!oset",
    "!seq",
    "!map",
    "!omap",
    "!bitset",
    "!binary",
    "!null",
    "set",
    "map",
    "byte",
    "short",
    "int",
    "long",
    "float",
    "double",
    "char",
    "void",
    "type",
    "String",
    "Byte",
    "Short",
    "Integer",
    "Long",
    "Float",
    "Double",
    "Char",
    "Character",
    "Class",
    "int8",
    "int16",
    "int32",
    "int64",
    "float32",
    "float64",
    "Float32",
    "Float64",
    "UUID",
    "short[]",
    "int[]",
    "long[]",
    "float[]",
    "double[]",
    "char[]",
    "boolean[]",
    "String[]",
    "LocalDate",
    "LocalTime",
    "LocalDateTime",
    "ZonedDateTime",
    "Date",
    "DateTime",
    "Time",
];
const KNOWN_COLLECTIONS: [&str; 4] = ["List", "Map", "Set", "CharSequence"];
const WIRE_TYPES: [&str; 13] = [
    "TEXT",
    "BINARY",
    "BINARY_LIGHT",
    "DEFAULT_ZERO_BINARY",
    "RAW",
    "CSV",
    "FIELDLESS_BINARY",
    "COMPRESSED_BINARY",
    "JSON",
    "JSON_ONLY",
    "YAML",
    "YAML_ONLY",
    "READ_ANY",
];
const TIME_UNITS: [&str; 7] =
    ["NANOSECONDS", "MICROSECONDS", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"];

/// Type names that say no more than the value.
pub const TRANSPARENT: [&str; 7] = ["String", "!seq", "!map", "!binary", "byte[]", "UUID", "type"];
/// Type names of which the plain codec makes a type of Python's, or an error.
pub const MEANT: [&str; 18] = [
    "byte",
    "short",
    "int",
    "long",
    "float",
    "double",
    "short[]",
    "int[]",
    "long[]",
    "float[]",
    "double[]",
    "!set",
    "!null",
    "Date",
    "Time",
    "DateTime",
    "ZonedDateTime",
    "lzw",
];
/// Type names of compressed values.
pub const COMPRESSIONS: [&str; 4] = ["gzip", "snappy", "zstd", "lz4"];

/// True for a type name that says nothing of its own of the value behind it.
pub fn is_known_type(name: &str) -> bool {
    KNOWN_TYPES.contains(&name) || KNOWN_COLLECTIONS.contains(&name)
}

/// The constants of an enum that Java's dump knows.
pub fn enum_constants(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "WireType" => Some(&WIRE_TYPES),
        "TimeUnit" => Some(&TIME_UNITS),
        _ => None,
    }
}
