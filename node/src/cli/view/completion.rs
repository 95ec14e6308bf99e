//! What `completion` and `man` print.

use serde::Serialize;

use super::View;

/// A text for another program, as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScriptView {
    /// The shell, or the page's file name.
    pub of: String,
    /// The whole text.
    pub script: String,
}

/// Pages that were written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PagesView {
    /// Where.
    pub dir: String,
    /// Their file names.
    pub pages: Vec<String>,
}

impl View for ScriptView {
    fn name(&self) -> String {
        self.of.clone()
    }

    fn text(&self, _paint: bool) -> String {
        self.script.trim_end().to_owned()
    }
}

impl View for PagesView {
    fn name(&self) -> String {
        self.pages.join("\n")
    }

    fn text(&self, _paint: bool) -> String {
        format!("{} pages written to {}", self.pages.len(), self.dir)
    }
}
