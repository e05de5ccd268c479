//! Acknowledgements, in the one shape that our sinks write: a cid document, then a body of 25
//! bytes.

/// The bytes of the body before the index; `NANOS` stands between the index and the nano time.
const HEAD: [u8; 9] = *b"\x19\0\0\0\xC3idx\xAF";
const NANOS: [u8; 4] = *b"\xC2ns\xA7";
/// How long an acknowledgement is behind its cid document.
pub const BYTES: usize = HEAD.len() + 8 + NANOS.len() + 8;

/// What stands behind a cid document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The index and the nano time of an acknowledgement.
    Acknowledgement(i64, i64),
    /// The beginning of an acknowledgement.
    Cut,
    /// Something else.
    Other,
}

/// Puts an acknowledgement behind what is to be sent.
pub fn write(out: &mut Vec<u8>, cid_document: &[u8], index: i64, ns: i64) {
    out.extend_from_slice(cid_document);
    out.extend_from_slice(&HEAD);
    out.extend_from_slice(&index.to_le_bytes());
    out.extend_from_slice(&NANOS);
    out.extend_from_slice(&ns.to_le_bytes());
}

/// What stands at the start of `data`, behind a cid document.
pub fn read(data: &[u8]) -> Body {
    let body = data.get(..data.len().min(BYTES)).unwrap_or_default();
    if let Some((index, ns)) = numbers(body) {
        Body::Acknowledgement(index, ns)
    } else if body.len() < BYTES && (body.starts_with(&HEAD) || HEAD.starts_with(body)) {
        Body::Cut
    } else {
        Body::Other
    }
}

fn numbers(body: &[u8]) -> Option<(i64, i64)> {
    let rest = body.strip_prefix(&HEAD)?;
    let (index, rest) = rest.split_first_chunk()?;
    let ns = rest.strip_prefix(&NANOS)?.first_chunk()?;
    Some((i64::from_le_bytes(*index), i64::from_le_bytes(*ns)))
}
