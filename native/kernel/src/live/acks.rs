//! Acknowledgements, in the one shape that our sinks write: a cid document, then a body of 25
//! bytes. What is on the sink's disk, and what its program has taken, is said in the same shape,
//! under other names.

/// The bytes of a body before the index, by the level of the board; `NANOS` stands between the index
/// and the nano time.
const HEADS: [[u8; 9]; 3] =
    [*b"\x19\0\0\0\xC3idx\xAF", *b"\x19\0\0\0\xC3syn\xAF", *b"\x19\0\0\0\xC3apl\xAF"];
const HEAD_BYTES: usize = 9;
const NANOS: [u8; 4] = *b"\xC2ns\xA7";
/// How long an acknowledgement is behind its cid document.
pub const BYTES: usize = HEAD_BYTES + 8 + NANOS.len() + 8;

/// What stands behind a cid document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The level, the index and the nano time of an acknowledgement.
    Acknowledgement(usize, i64, i64),
    /// The beginning of an acknowledgement.
    Cut,
    /// Something else.
    Other,
}

/// Puts an acknowledgement behind what is to be sent.
pub fn write(out: &mut Vec<u8>, cid_document: &[u8], level: usize, index: i64, ns: i64) {
    let Some(head) = HEADS.get(level) else {
        return; // there is no such level
    };
    out.extend_from_slice(cid_document);
    out.extend_from_slice(head);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&NANOS);
    out.extend_from_slice(&ns.to_le_bytes());
}

/// What stands at the start of `data`, behind a cid document.
pub fn read(data: &[u8]) -> Body {
    let body = data.get(..data.len().min(BYTES)).unwrap_or_default();
    for (level, head) in HEADS.iter().enumerate() {
        if let Some((index, ns)) = numbers(body, head) {
            return Body::Acknowledgement(level, index, ns);
        }
    }
    let begins = |head: &[u8; HEAD_BYTES]| body.starts_with(head) || head.starts_with(body);
    if body.len() < BYTES && HEADS.iter().any(begins) {
        Body::Cut
    } else {
        Body::Other
    }
}

fn numbers(body: &[u8], head: &[u8]) -> Option<(i64, i64)> {
    let rest = body.strip_prefix(head)?;
    let (index, rest) = rest.split_first_chunk()?;
    let ns = rest.strip_prefix(&NANOS)?.first_chunk()?;
    Some((i64::from_le_bytes(*index), i64::from_le_bytes(*ns)))
}
