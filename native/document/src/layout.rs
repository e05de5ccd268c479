//! The line breaks, blanks, commas and brackets in the text of a document. The reference is
//! `wire/text/print_layout.py`, which tells the theory.

/// The separator that stands before the next item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    Nothing,
    AfterComment,
    Blank,
    NewLine,
    Comma,
    CommaNewLine,
}

impl Owed {
    fn text(self) -> &'static str {
        match self {
            Owed::Nothing | Owed::AfterComment => "",
            Owed::Blank => " ",
            Owed::NewLine => "\n",
            Owed::Comma => ", ",
            Owed::CommaNewLine => ",\n",
        }
    }
}

/// Collects the items of one document.
#[derive(Debug)]
pub struct Layout {
    out: String,
    /// The text began here in `out`.
    start: usize,
    owed: Owed,
    stack: Vec<Owed>,
    is_leaf: bool,
}

/// The state before a bracket, for its end.
#[derive(Debug, Clone, Copy)]
pub struct Opened {
    is_leaf: bool,
    outer: bool,
    length: usize,
    has_bracket: bool,
}

impl Layout {
    /// Writes behind this text.
    pub fn new(out: String) -> Self {
        let start = out.len();
        Layout { out, start, owed: Owed::Nothing, stack: Vec::new(), is_leaf: false }
    }

    /// The text, tidied at its end.
    pub fn text(mut self) -> String {
        self.tidy();
        self.out
    }

    /// Begins a complete value; `done` ends it.
    pub fn begin(&mut self) -> &mut String {
        self.write(self.owed.text());
        self.tidy();
        if self.owed == Owed::AfterComment || self.written().last() == Some(&b'\n') {
            self.pad();
        }
        self.owed = Owed::Nothing;
        &mut self.out
    }

    /// Behind a complete value.
    pub fn done(&mut self) {
        self.owed = match (self.is_leaf, self.stack.is_empty()) {
            (true, _) => Owed::Comma,
            (false, false) => Owed::CommaNewLine,
            (false, true) => {
                self.write("\n");
                Owed::Nothing
            }
        };
        self.tidy();
    }

    /// Behind the text of a comment.
    pub fn end_comment(&mut self) {
        self.write("\n");
        self.owed = Owed::AfterComment;
    }

    /// Puts the next items on one line, or each on its own.
    pub fn set_leaf(&mut self, is_leaf: bool) {
        self.is_leaf = is_leaf;
        if !is_leaf && matches!(self.owed, Owed::Comma | Owed::CommaNewLine) {
            self.done();
        }
    }

    /// Begins the item that names an event by an object.
    pub fn open_key(&mut self) -> bool {
        self.begin().push_str("? ");
        let outer = self.is_leaf;
        self.set_leaf(true);
        outer
    }

    /// Ends it.
    pub fn close_key(&mut self, outer: bool) {
        self.set_leaf(outer);
        if matches!(self.written().last(), Some(b' ' | b'\t'..=b'\r' | 0x1c..=0x1f)) {
            self.out.pop();
        }
        self.write(": ");
        self.owed = Owed::Nothing;
    }

    /// Begins a sequence.
    pub fn open_sequence(&mut self) -> Opened {
        let is_leaf = self.is_leaf;
        self.open("[");
        match is_leaf {
            true => self.write(" "),
            false => self.owed = Owed::NewLine,
        }
        Opened { is_leaf, outer: is_leaf, length: self.out.len(), has_bracket: true }
    }

    /// Ends it.
    pub fn close_sequence(&mut self, opened: Opened) {
        // the threshold is "more than one character", as Java's
        let has_items = self.out.len().saturating_sub(opened.length) > 1;
        if has_items && !opened.is_leaf {
            self.write("\n");
        }
        self.pop();
        self.is_leaf = opened.is_leaf;
        match (opened.is_leaf, has_items) {
            (false, _) => self.pad(),
            (true, true) => self.write(" "),
            (true, false) => {}
        }
        self.tidy();
        self.write("]");
        self.done();
    }

    /// Begins a map; one that starts a document gets no braces.
    pub fn open_map(&mut self, may_fold: bool) -> Opened {
        let outer = self.is_leaf;
        if may_fold && self.stack.len() > 1 {
            self.is_leaf = true;
        }
        let (is_leaf, length) = (self.is_leaf, self.out.len());
        let has_bracket = length > self.start;
        if has_bracket {
            self.open("{");
            self.owed = if is_leaf { Owed::Blank } else { Owed::NewLine };
        }
        Opened { is_leaf, outer, length, has_bracket }
    }

    /// Ends it.
    pub fn close_map(&mut self, opened: Opened) {
        if opened.has_bracket {
            if opened.is_leaf && matches!(self.owed, Owed::Blank | Owed::Comma) {
                self.write(" ");
            }
            self.tidy();
            self.is_leaf = false;
            self.pop();
            if !opened.is_leaf {
                self.owed = Owed::NewLine;
            }
            self.begin();
            self.tidy();
            self.write("}");
        }
        self.is_leaf = opened.outer;
        if opened.has_bracket {
            self.done();
        }
    }

    fn open(&mut self, bracket: &str) {
        if !self.owed.text().is_empty() {
            self.write(self.owed.text());
            self.tidy();
            self.pad();
            self.owed = Owed::Nothing;
        }
        self.stack.push(self.owed);
        self.owed = Owed::Nothing;
        self.write(bracket);
    }

    fn pop(&mut self) {
        self.owed = self.stack.pop().unwrap_or(Owed::Nothing);
        self.is_leaf = false;
    }

    fn pad(&mut self) {
        self.tidy();
        for _ in 0..self.stack.len() {
            self.out.push_str("  ");
        }
    }

    fn tidy(&mut self) {
        match *self.written() {
            [.., b'\n', b'\n'] => {
                self.out.pop();
            }
            [.., b' ', b'\n'] => {
                self.out.pop();
                self.out.pop();
                self.out.push('\n');
            }
            [.., first, b' ', b' '] if first > b' ' => {
                self.out.pop();
            }
            _ => {}
        }
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn written(&self) -> &[u8] {
        self.out.as_bytes().get(self.start..).unwrap_or(&[])
    }
}
