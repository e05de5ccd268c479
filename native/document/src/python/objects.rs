//! Documents as Python's own types. The reference is `wire/objects/object_reader.py`.

use std::collections::HashMap;
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyList, PyString};
use pyo3::IntoPyObjectExt;

use crate::items::{code, is_framed, Body, Number, Unusual, NESTING_MAX};
use crate::python::given::{answered, with_bytes, Stop};
use crate::shapes::HISTORY_NUMBER;
use crate::typenames::{COMPRESSIONS, MEANT, TRANSPARENT};

type Value<'py> = Result<Bound<'py, PyAny>, Stop>;

/// Names are kept, as documents have the same ones again and again: so many, so long.
const NAMES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 64;
/// The names of fields as texts of Python.
#[derive(Default)]
pub struct KeptNames(Mutex<HashMap<Box<[u8]>, Py<PyString>>>);

impl KeptNames {
    /// The text of a name, each byte of which is a character.
    pub fn text<'py>(&self, py: Python<'py>, name: &[u8]) -> Bound<'py, PyString> {
        // a thread that waits here would hold the GIL: who finds it taken makes a text of its own
        if let Ok(mut names) = self.0.try_lock() {
            if let Some(known) = names.get(name) {
                return known.bind(py).clone();
            }
            let text = latin_text(py, name);
            if names.len() < NAMES_MAX && name.len() <= NAME_BYTES_MAX {
                names.insert(name.into(), text.clone().unbind());
            }
            return text;
        }
        latin_text(py, name)
    }
}

fn latin_text<'py>(py: Python<'py>, name: &[u8]) -> Bound<'py, PyString> {
    match std::str::from_utf8(name) {
        Ok(text) if name.is_ascii() => PyString::new(py, text),
        _ => PyString::new(py, &name.iter().copied().map(char::from).collect::<String>()),
    }
}

/// Makes values of Python.
pub struct Objects {
    /// Texts of names.
    pub names: KeptNames,
    /// From a code and a text to a date or a time; raises where the text is none.
    time: Py<PyAny>,
    /// From 128 bits to a UUID.
    uuid: Py<PyAny>,
    /// From a type name and a value to both.
    typed: Py<PyAny>,
    /// From a type name to the class as a value.
    type_literal: Py<PyAny>,
    /// Only what Java's text shows in the same way, as `wire.text.print_values` has it: names once
    /// and printable, no types, no comments.
    is_shown: bool,
}

impl Objects {
    /// The content of a body: its fields, its only value, or a list of its values.
    fn body<'py>(&self, py: Python<'py>, body: &mut Body<'_>) -> Value<'py> {
        if self.is_shown {
            *body = body.without_filler();
            if !body.is_map()? {
                return Err(Stop::Unusual);
            }
        }
        if body.is_map()? {
            let fields = self.fields(py, body, 0)?;
            return match body.code()? {
                None => Ok(fields.into_any()),
                Some(_) => Err(Stop::Unusual),
            };
        }
        let values = self.values(py, body, 0)?;
        match values.len() {
            0 => Ok(py.None().into_bound(py)),
            1 => Ok(values.get_item(0)?),
            _ => Ok(values.into_any()),
        }
    }

    fn fields<'py>(
        &self,
        py: Python<'py>,
        body: &mut Body<'_>,
        depth: usize,
    ) -> Result<Bound<'py, PyDict>, Stop> {
        let found = PyDict::new(py);
        let mut count = 0;
        while body.is_map()? {
            count += 1;
            let name = match body.value_code()? {
                code::FIELD_NUMBER if self.is_shown => return Err(Stop::Unusual),
                code::FIELD_NUMBER => match body.name_number()? {
                    HISTORY_NUMBER => self.names.text(py, b"history"),
                    number => PyString::new(py, &number.to_string()),
                },
                _ => {
                    let name = body.name()?;
                    if self.is_shown && name.iter().any(|byte| *byte < 0x20) {
                        return Err(Stop::Unusual);
                    }
                    self.names.text(py, name)
                }
            };
            found.set_item(name, self.value(py, body, depth)?)?;
        }
        if self.is_shown && found.len() != count {
            return Err(Stop::Unusual); // a name came twice
        }
        Ok(found)
    }

    fn values<'py>(
        &self,
        py: Python<'py>,
        body: &mut Body<'_>,
        depth: usize,
    ) -> Result<Bound<'py, PyList>, Stop> {
        let found = PyList::empty(py);
        while body.code()?.is_some() {
            if body.is_map()? {
                if self.is_shown {
                    return Err(Stop::Unusual);
                }
                found.append(self.fields(py, body, depth)?)?;
            } else {
                found.append(self.value(py, body, depth)?)?;
            }
        }
        Ok(found)
    }

    /// The value that stands next.
    pub fn value<'py>(&self, py: Python<'py>, body: &mut Body<'_>, depth: usize) -> Value<'py> {
        let code = body.value_code()?;
        match code {
            0..code::BYTES_LENGTH8 | code::UUID | code::TYPE_LITERAL | code::TYPE_PREFIX
                if self.is_shown =>
            {
                Err(Stop::Unusual)
            }
            code::STRING0..=0xff => Ok(PyString::new(py, body.text()?).into_any()),
            code::STRING_ANY => {
                let mut after = *body;
                after.pass_code()?;
                if after.stop_bit()? == -1 {
                    *body = after;
                    return Ok(py.None().into_bound(py));
                }
                Ok(PyString::new(py, body.text()?).into_any())
            }
            0..code::BYTES_LENGTH8
            | code::FLOAT32..=code::FLOAT64
            | code::FLOAT_STOP_2..=code::FLOAT_STOP_6
            | code::UINT8..=code::INT64_0X => match body.number()? {
                // in hexadecimal the text has no sign
                Number::Whole(value) if self.is_shown && code == code::INT64_0X && value < 0 => {
                    Err(Stop::Unusual)
                }
                Number::Whole(value) => Ok(value.into_bound_py_any(py)?),
                Number::Float(value) => Ok(PyFloat::new(py, value).into_any()),
            },
            code::BYTES_LENGTH8..=code::BYTES_LENGTH32 => self.block(py, body, depth),
            code::TRUE | code::FALSE => Ok(PyBool::new(py, body.boolean()?).to_owned().into_any()),
            code::NULL => {
                body.pass_code()?;
                Ok(py.None().into_bound(py))
            }
            code::TIME..=code::ZONED_DATE_TIME => self.time(py, body),
            code::UUID => Ok(self.uuid.bind(py).call1((body.uuid()?,))?),
            code::TYPE_LITERAL => {
                body.pass_code()?;
                Ok(self.type_literal.bind(py).call1((body.prefixed_text()?,))?)
            }
            code::TYPE_PREFIX => self.typed(py, body, depth),
            _ => Err(Stop::Unusual),
        }
    }

    /// A date or a time.
    pub fn time<'py>(&self, py: Python<'py>, body: &mut Body<'_>) -> Value<'py> {
        let code = body.value_code()?;
        if !matches!(code, code::TIME..=code::ZONED_DATE_TIME) {
            return Err(Stop::Unusual);
        }
        body.pass_code()?;
        let text = body.prefixed_text()?;
        // the plain codec says where the text stands that is none
        self.time.bind(py).call1((code, text)).map_err(|_| Stop::Unusual)
    }

    /// A UUID.
    pub fn uuid<'py>(&self, py: Python<'py>, body: &mut Body<'_>) -> Value<'py> {
        Ok(self.uuid.bind(py).call1((body.uuid()?,))?)
    }

    fn block<'py>(&self, py: Python<'py>, body: &mut Body<'_>, depth: usize) -> Value<'py> {
        let mut block = body.block()?;
        match block.raw_first() {
            Some(code::U8_ARRAY) => {
                block.pass_code()?;
                Ok(PyBytes::new(py, block.rest()).into_any())
            }
            Some(code::HISTORY_MESSAGE) => Err(Stop::Unusual),
            _ if depth == NESTING_MAX => Err(Stop::Unusual),
            _ if block.is_map()? => {
                let fields = self.fields(py, &mut block, depth + 1)?;
                if block.code()?.is_some() {
                    return Err(Stop::Unusual);
                }
                Ok(fields.into_any())
            }
            _ => Ok(self.values(py, &mut block, depth + 1)?.into_any()),
        }
    }

    fn typed<'py>(&self, py: Python<'py>, body: &mut Body<'_>, depth: usize) -> Value<'py> {
        body.pass_code()?;
        let name = body.prefixed_text()?;
        if depth == NESTING_MAX || MEANT.contains(&name) || COMPRESSIONS.contains(&name) {
            return Err(Stop::Unusual);
        }
        let value = self.value(py, body, depth + 1)?;
        if TRANSPARENT.contains(&name) {
            return Ok(value);
        }
        Ok(self.typed.bind(py).call1((name, value))?)
    }
}

/// Reads documents as Python's own types.
#[pyclass(name = "ObjectReader", module = "wire._codec", frozen)]
pub struct PyObjectReader {
    pub objects: Objects,
}

#[pymethods]
impl PyObjectReader {
    #[new]
    fn new(
        time: Py<PyAny>,
        uuid: Py<PyAny>,
        typed: Py<PyAny>,
        type_literal: Py<PyAny>,
        is_shown: bool,
    ) -> Self {
        let names = KeptNames::default();
        PyObjectReader { objects: Objects { names, time, uuid, typed, type_literal, is_shown } }
    }

    /// The content of a document body; `NotImplemented` where the plain codec has to read it.
    fn read<'py>(&self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = data.py();
        let result = with_bytes(data, |bytes| {
            if !self.objects.is_shown && is_framed(bytes) {
                return Err(Stop::from(Unusual));
            }
            self.objects.body(py, &mut Body::new(bytes))
        })?;
        answered(py, result)
    }
}
