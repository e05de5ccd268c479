//! Objects of dataclasses as documents. The reference is `wire/objects/annotated.py`.
//!
//! A value of another type than its field says is unusual, a subclass too: the plain codec writes
//! it, or says why it cannot.

use std::collections::HashMap;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::items::code;
use crate::python::given::{answered, Stop};
use crate::spelled::Moment;
use crate::written;

type Write = Result<(), Stop>;
/// Members of an enum by their addresses, each with its item.
type EnumItems = HashMap<usize, (Py<PyAny>, Vec<u8>)>;

enum Form {
    Integer { least: i64, greatest: i64 },
    Float,
    Float32,
    Decimal { class: Py<PyAny> },
    Text,
    Boolean,
    Bytes,
    Enum { items: EnumItems, is_open: bool },
    Time { class: Py<PyAny>, code: u8 },
    Uuid { class: Py<PyAny> },
    Message(Box<MessageForm>),
    List { item: Box<PartForm> },
    Map { item: Box<PartForm> },
}

struct PartForm {
    form: Form,
    is_nullable: bool,
}

struct MemberForm {
    /// The item of its name.
    name: Vec<u8>,
    attribute: Py<PyString>,
    part: PartForm,
}

struct MessageForm {
    class: Py<PyAny>,
    members: Vec<MemberForm>,
}

impl PartForm {
    fn of(given: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let (kind, is_nullable, detail): (String, bool, Bound<'_, PyAny>) = given.extract()?;
        let form = match kind.as_str() {
            "integer" => {
                let (least, greatest) = detail.extract()?;
                Form::Integer { least, greatest }
            }
            "float" => Form::Float,
            "float32" => Form::Float32,
            "decimal" => Form::Decimal { class: detail.unbind() },
            "text" => Form::Text,
            "boolean" => Form::Boolean,
            "bytes" => Form::Bytes,
            "enum" | "open_enum" => Form::Enum {
                items: items_of(&detail.cast_into::<PyDict>()?)?,
                is_open: kind == "open_enum",
            },
            "date" => Form::Time { class: detail.unbind(), code: code::DATE },
            "time" => Form::Time { class: detail.unbind(), code: code::TIME },
            "moment" => Form::Time { class: detail.unbind(), code: code::DATE_TIME },
            "uuid" => Form::Uuid { class: detail.unbind() },
            "message" => Form::Message(Box::new(MessageForm::of(&detail)?)),
            "list" => Form::List { item: Box::new(PartForm::of(&detail.cast_into()?)?) },
            "map" => Form::Map { item: Box::new(PartForm::of(&detail.cast_into()?)?) },
            other => {
                return Err(pyo3::exceptions::PyTypeError::new_err(format!(
                    "a kind that is known was expected, {other} came"
                )))
            }
        };
        Ok(PartForm { form, is_nullable })
    }

    fn write(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Write {
        if self.is_nullable && value.is_none() {
            out.push(code::NULL);
            return Ok(());
        }
        let py = value.py();
        match &self.form {
            Form::Integer { least, greatest } => {
                if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
                    return Err(Stop::Unusual);
                }
                let number: i64 = value.extract().map_err(|_| Stop::Unusual)?;
                if number < *least || number > *greatest {
                    return Err(Stop::Unusual);
                }
                written::whole(out, number);
            }
            Form::Float | Form::Float32 => {
                let number = value.cast::<PyFloat>().map_err(|_| Stop::Unusual)?.value();
                match self.form {
                    Form::Float => written::double(out, number)?,
                    _ => written::single(out, number)?,
                }
            }
            Form::Decimal { class } => {
                check_class(value, class)?;
                let text = value.str()?;
                let text = text.to_str()?;
                if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'-')) {
                    return Err(Stop::Unusual); // an exponent, or no number
                }
                written::text(out, text)?;
            }
            Form::Text => text(value, out)?,
            Form::Boolean => {
                let flag = value.cast_exact::<PyBool>().map_err(|_| Stop::Unusual)?.is_true();
                out.push(if flag { code::TRUE } else { code::FALSE });
            }
            Form::Bytes => {
                let payload = value.cast_exact::<PyBytes>().map_err(|_| Stop::Unusual)?;
                written::bytes(out, payload.as_bytes())?;
            }
            Form::Enum { items, is_open } => match items.get(&(value.as_ptr() as usize)) {
                Some((_, item)) => out.extend_from_slice(item),
                None if *is_open => text(value, out)?,
                None => return Err(Stop::Unusual),
            },
            Form::Time { class, code } => {
                check_class(value, class)?;
                let has_zone =
                    *code != code::DATE && !value.getattr(intern!(py, "tzinfo"))?.is_none();
                if has_zone {
                    return Err(Stop::Unusual); // its region is for the plain codec
                }
                let shown = value.call_method0(intern!(py, "isoformat"))?;
                let shown = shown.cast::<PyString>().map_err(|_| Stop::Unusual)?;
                let mut java = String::new();
                Moment::read(*code, shown.to_str()?)?.java(&mut java);
                written::time(out, *code, &java)?;
            }
            Form::Uuid { class } => {
                check_class(value, class)?;
                let bytes = value.getattr(intern!(py, "bytes"))?;
                let bytes = bytes.cast::<PyBytes>().map_err(|_| Stop::Unusual)?.as_bytes();
                written::uuid(
                    out,
                    u128::from_be_bytes(bytes.try_into().map_err(|_| Stop::Unusual)?),
                );
            }
            Form::Message(message) => {
                written::block(out, |out| message.write(value, out))?;
            }
            Form::List { item } => written::block(out, |out| {
                if let Ok(list) = value.cast_exact::<PyList>() {
                    return list.iter().try_for_each(|each| item.write(&each, out));
                }
                let tuple = value.cast_exact::<PyTuple>().map_err(|_| Stop::Unusual)?;
                tuple.iter().try_for_each(|each| item.write(&each, out))
            })?,
            Form::Map { item } => {
                let map = value.cast_exact::<PyDict>().map_err(|_| Stop::Unusual)?;
                written::block(out, |out| {
                    for pair in map.items() {
                        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
                        let name = name.cast_exact::<PyString>().map_err(|_| Stop::Unusual)?;
                        let name = name.to_str().map_err(|_| Stop::Unusual)?;
                        if !name.is_ascii() {
                            return Err(Stop::Unusual);
                        }
                        written::length(out, code::EVENT_NAME, name.len())?;
                        out.extend_from_slice(name.as_bytes());
                        item.write(&value, out)?;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }
}

fn items_of(members: &Bound<'_, PyDict>) -> PyResult<EnumItems> {
    let mut items = HashMap::new();
    for (member, item) in members.iter() {
        items.insert(member.as_ptr() as usize, (member.unbind(), item.extract()?));
    }
    Ok(items)
}

fn check_class(value: &Bound<'_, PyAny>, class: &Py<PyAny>) -> Write {
    if value.get_type().is(class) {
        Ok(())
    } else {
        Err(Stop::Unusual)
    }
}

fn text(value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Write {
    let text = value.cast_exact::<PyString>().map_err(|_| Stop::Unusual)?;
    written::text(out, text.to_str().map_err(|_| Stop::Unusual)?)?;
    Ok(())
}

impl MessageForm {
    fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        type Member<'py> = (Vec<u8>, Bound<'py, PyString>, Bound<'py, PyTuple>);
        let (class, given): (Py<PyAny>, Vec<Member<'_>>) = given.extract()?;
        let mut members = Vec::new();
        for (name, attribute, part) in given {
            let part = PartForm::of(&part)?;
            members.push(MemberForm { name, attribute: attribute.unbind(), part });
        }
        Ok(MessageForm { class, members })
    }

    fn write(&self, value: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> Write {
        check_class(value, &self.class)?;
        for member in &self.members {
            out.extend_from_slice(&member.name);
            let value = value.getattr(member.attribute.bind(value.py()));
            member.part.write(&value.map_err(|_| Stop::Unusual)?, out)?;
        }
        Ok(())
    }
}

/// Writes objects of one dataclass as documents.
#[pyclass(name = "MessageWriter", module = "wire._codec", frozen)]
pub struct PyMessageWriter {
    message: MessageForm,
    event: Option<Vec<u8>>,
}

#[pymethods]
impl PyMessageWriter {
    /// Args:
    ///     message: class, and of each field the item of its name, its attribute and its form.
    ///     event: the item of the method that the message is the argument of.
    #[new]
    fn new(message: &Bound<'_, PyAny>, event: Option<Vec<u8>>) -> PyResult<Self> {
        Ok(PyMessageWriter { message: MessageForm::of(message)?, event })
    }

    /// The document of a message; `NotImplemented` where the plain codec has to write it.
    fn write<'py>(&self, message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = message.py();
        let mut out = Vec::with_capacity(256);
        let result = match &self.event {
            None => self.message.write(message, &mut out),
            Some(event) => {
                out.extend_from_slice(event);
                written::block(&mut out, |out| self.message.write(message, out))
            }
        };
        answered(py, result.map(|()| PyBytes::new(py, &out).into_any()))
    }
}
