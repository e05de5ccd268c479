//! Documents as objects of dataclasses. The reference is `wire/objects/annotated.py`.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyList, PyString, PyTuple};
use pyo3::IntoPyObjectExt;

use crate::columns::enum_text;
use crate::items::{code, is_framed, Body, Unusual};
use crate::python::given::{answered, with_bytes, Stop};
use crate::python::objects::PyObjectReader;
use crate::scalars;
use crate::shapes::{self, Names};

type Value<'py> = Result<Bound<'py, PyAny>, Stop>;

/// Of a field: its name, form, whether it is required, its default, and what makes one.
pub type GivenMember<'py> =
    (Vec<u8>, Bound<'py, PyTuple>, bool, Bound<'py, PyAny>, Option<Py<PyAny>>);

/// The form of a value, with the objects of Python that it takes.
enum Form {
    Integer { least: i64, greatest: i64, width: Option<Py<PyAny>> },
    Float { class: Option<Py<PyAny>> },
    Decimal { class: Py<PyAny> },
    Text,
    Boolean,
    Bytes,
    Enum { members: Py<PyDict>, is_open: bool },
    Time { class: Py<PyAny> },
    Uuid,
    Any,
    Message(Box<MessageForm>),
    List { item: Box<PartForm>, is_tuple: bool },
    Map { item: Box<PartForm> },
}

/// A form, and whether null is a value of it.
struct PartForm {
    form: Form,
    is_nullable: bool,
}

/// The value of a field that is not there.
enum Absent {
    Required,
    Value(Py<PyAny>),
    Made(Py<PyAny>),
}

struct MessageForm {
    names: Names,
    type_name: String,
    class: Py<PyAny>,
    parts: Vec<PartForm>,
    absent: Vec<Absent>,
}

/// Names, or the error that they are not for this codec.
pub fn names_of(names: Vec<Vec<u8>>) -> PyResult<Names> {
    Names::new(names.into_iter().map(Vec::into_boxed_slice).collect()).map_err(|_| {
        pyo3::exceptions::PyTypeError::new_err("at most 128 different names of fields expected")
    })
}

fn unknown(kind: &str) -> PyErr {
    pyo3::exceptions::PyTypeError::new_err(format!(
        "a kind that is known was expected, {kind} came"
    ))
}

impl PartForm {
    fn of(given: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let (kind, is_nullable, detail): (String, bool, Bound<'_, PyAny>) = given.extract()?;
        let form = match kind.as_str() {
            "integer" => {
                let (least, greatest, width, _) =
                    detail.extract::<(i64, i64, Option<Py<PyAny>>, usize)>()?;
                Form::Integer { least, greatest, width }
            }
            "float" | "float32" => Form::Float { class: detail.extract()? },
            "decimal" => Form::Decimal { class: detail.unbind() },
            "text" => Form::Text,
            "boolean" => Form::Boolean,
            "bytes" => Form::Bytes,
            "enum" | "open_enum" => {
                let members = detail.cast_into::<PyDict>()?.unbind();
                Form::Enum { members, is_open: kind == "open_enum" }
            }
            "date" | "time" | "moment" => Form::Time { class: detail.unbind() },
            "uuid" => Form::Uuid,
            "object" => Form::Any,
            "message" => Form::Message(Box::new(MessageForm::of(&detail)?)),
            "list" => {
                let (item, is_tuple): (Bound<'_, PyTuple>, bool) = detail.extract()?;
                Form::List { item: Box::new(PartForm::of(&item)?), is_tuple }
            }
            "map" => {
                let item = detail.cast_into::<PyTuple>()?;
                Form::Map { item: Box::new(PartForm::of(&item)?) }
            }
            other => return Err(unknown(other)),
        };
        Ok(PartForm { form, is_nullable })
    }
}

impl MessageForm {
    fn of(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (type_name, class, members): (String, Py<PyAny>, Vec<Bound<'_, PyTuple>>) =
            given.extract()?;
        let (mut names, mut parts, mut absent) = (Vec::new(), Vec::new(), Vec::new());
        for member in members {
            let (name, part, is_required, default, factory) =
                member.extract::<GivenMember<'_>>()?;
            names.push(name);
            parts.push(PartForm::of(&part)?);
            absent.push(match (is_required, factory) {
                (true, _) => Absent::Required,
                (false, Some(factory)) => Absent::Made(factory),
                (false, None) => Absent::Value(default.unbind()),
            });
        }
        Ok(MessageForm { names: names_of(names)?, type_name, class, parts, absent })
    }
}

/// Reads documents as objects of one dataclass.
#[pyclass(name = "MessageReader", module = "wire._codec", frozen)]
pub struct PyMessageReader {
    message: MessageForm,
    event: Option<Vec<u8>>,
    objects: Py<PyObjectReader>,
}

#[pymethods]
impl PyMessageReader {
    /// Args:
    ///     message: type name, class, and of each field its name, form, whether it is required, its
    ///         default, and what makes one.
    ///     event: the name of the method that the message is the argument of.
    ///     objects: reads values of any kind.
    #[new]
    fn new(
        message: &Bound<'_, PyAny>,
        event: Option<Vec<u8>>,
        objects: Py<PyObjectReader>,
    ) -> PyResult<Self> {
        Ok(PyMessageReader { message: MessageForm::of(message)?, event, objects })
    }

    /// The message of a document; None for a call of another method, `NotImplemented` where the
    /// plain codec has to read it.
    fn read<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = data.py();
        let result = with_bytes(data, |bytes| self.document(py, bytes))?;
        answered(py, result)
    }
}

impl PyMessageReader {
    fn document<'py>(&self, py: Python<'py>, data: &[u8]) -> Value<'py> {
        if is_framed(data) {
            return Err(Stop::Unusual);
        }
        let mut body = Body::new(data);
        let Some(event) = &self.event else {
            return self.fields(py, &self.message, &mut body);
        };
        if shapes::called_method(&mut body)? != event {
            return Ok(py.None().into_bound(py));
        }
        let found = self.message(py, &self.message, &mut body)?;
        if body.code()?.is_some() {
            Err(Stop::Unusual)
        } else {
            Ok(found)
        }
    }

    fn message<'py>(
        &self,
        py: Python<'py>,
        message: &MessageForm,
        body: &mut Body<'_>,
    ) -> Value<'py> {
        shapes::check_type(body, &message.type_name)?;
        let mut block = body.block()?;
        self.fields(py, message, &mut block)
    }

    fn fields<'py>(
        &self,
        py: Python<'py>,
        message: &MessageForm,
        body: &mut Body<'_>,
    ) -> Value<'py> {
        let mut values: Vec<Option<Bound<'py, PyAny>>> = Vec::new();
        values.resize_with(message.names.len(), || None);
        shapes::walk_fields(body, &message.names, |place, body| {
            let part = message.parts.get(place).ok_or(Unusual)?;
            let value = self.part(py, part, body)?;
            if let Some(slot) = values.get_mut(place) {
                *slot = Some(value);
            }
            Ok::<_, Stop>(())
        })?;
        let mut arguments = Vec::with_capacity(values.len());
        for (value, absent) in values.into_iter().zip(&message.absent) {
            arguments.push(match (value, absent) {
                (Some(value), _) => value,
                (None, Absent::Required) => return Err(Stop::Unusual),
                (None, Absent::Value(default)) => default.bind(py).clone(),
                (None, Absent::Made(factory)) => factory.bind(py).call0()?,
            });
        }
        Ok(message.class.bind(py).call1(PyTuple::new(py, arguments)?)?)
    }

    fn part<'py>(&self, py: Python<'py>, part: &PartForm, body: &mut Body<'_>) -> Value<'py> {
        if part.is_nullable && body.value_code()? == code::NULL {
            body.pass_code()?;
            return Ok(py.None().into_bound(py));
        }
        match &part.form {
            Form::Integer { least, greatest, width } => {
                let value = body.integer()?;
                if value < *least || value > *greatest {
                    return Err(Stop::Unusual);
                }
                match width {
                    None => Ok(value.into_bound_py_any(py)?),
                    Some(width) => Ok(width.bind(py).call1((value,))?),
                }
            }
            Form::Float { class } => {
                let value = PyFloat::new(py, body.float()?).into_any();
                match class {
                    None => Ok(value),
                    Some(class) => Ok(class.bind(py).call1((value,))?),
                }
            }
            Form::Decimal { class } => {
                let text = body.text()?;
                if !scalars::is_decimal(text) {
                    return Err(Stop::Unusual);
                }
                Ok(class.bind(py).call1((text,))?)
            }
            Form::Text => {
                let text = match body.value_code()? {
                    code::TIME..=code::ZONED_DATE_TIME | code::TYPE_LITERAL => {
                        body.pass_code()?;
                        body.prefixed_text()?
                    }
                    _ => body.text()?,
                };
                Ok(PyString::new(py, text).into_any())
            }
            Form::Boolean => {
                Ok(pyo3::types::PyBool::new(py, body.boolean()?).to_owned().into_any())
            }
            Form::Bytes => Ok(PyBytes::new(py, body.bytes()?).into_any()),
            Form::Enum { members, is_open } => {
                let name = PyString::new(py, enum_text(body)?);
                match members.bind(py).get_item(&name)? {
                    Some(member) => Ok(member),
                    None if *is_open => Ok(name.into_any()),
                    None => Err(Stop::Unusual),
                }
            }
            Form::Time { class } => {
                let value = self.objects.get().objects.time(py, body)?;
                if value.is_instance(class.bind(py))? {
                    Ok(value)
                } else {
                    Err(Stop::Unusual)
                }
            }
            Form::Uuid => self.objects.get().objects.uuid(py, body),
            Form::Any => self.objects.get().objects.value(py, body, 0),
            Form::Message(message) => self.message(py, message, body),
            Form::List { item, is_tuple } => self.items(py, item, *is_tuple, body),
            Form::Map { item } => {
                let mut block = body.block()?;
                let found = PyDict::new(py);
                while block.code()?.is_some() {
                    let name = self.objects.get().objects.names.text(py, block.name()?);
                    found.set_item(name, self.part(py, item, &mut block)?)?;
                }
                Ok(found.into_any())
            }
        }
    }

    fn items<'py>(
        &self,
        py: Python<'py>,
        item: &PartForm,
        is_tuple: bool,
        body: &mut Body<'_>,
    ) -> Value<'py> {
        let mut block = body.block()?;
        let found = PyList::empty(py);
        while block.code()?.is_some() {
            found.append(self.part(py, item, &mut block)?)?;
        }
        Ok(if is_tuple { found.to_tuple().into_any() } else { found.into_any() })
    }
}
