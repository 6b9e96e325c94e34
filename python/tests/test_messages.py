"""Every text of two words or more in the sources of the package is in messages.txt, so that a new or changed
message is read in review. `RINGMAIN_UPDATE_MESSAGES=1` rewrites the file."""

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
SNAPSHOT = Path(__file__).with_name("messages.txt")

# What a text can stand beside in Rust: only literals without an `r` in front of them are used for messages.
RUST = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | '(?:\\.[^']*|[^\\'])'
      | (?P<attribute>\#!?\[)
      | b?"(?P<text>(?:\\.|[^"\\])*)\"""",
    re.VERBOSE | re.DOTALL,
)
CONTINUED = re.compile(r"\\\n\s*")


def texts_of_rust(source: str) -> Iterator[str]:
    """Yields the string literals outside of comments, attributes and tests."""
    source = source.split("#[cfg(test)]\nmod ")[0]
    at = 0
    while found := RUST.search(source, at):
        at = found.end()
        if found["attribute"]:
            at = end_of_attribute(source, at)
        elif found["text"] is not None:
            text = CONTINUED.sub("", found["text"])
            yield text.replace('\\"', '"').replace("\\\\", "\\")


def end_of_attribute(source: str, at: int) -> int:
    """Returns the position after the bracket that closes an attribute."""
    depth = 1
    for found in re.finditer(r'"(?:\\.|[^"\\])*"|[\[\]]', source[at:], re.DOTALL):
        depth += {"[": 1, "]": -1}.get(found[0], 0)
        if depth == 0:
            return at + found.end()
    raise AssertionError("an attribute does not end")


def texts_of_python(source: str) -> Iterator[str]:
    """Yields the strings that are not documentation; the values in an f-string appear as their expressions."""
    tree = ast.parse(source)
    left_out: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant() as documentation):
                left_out.add(documentation)
            case ast.arg(annotation=ast.AST() as hint) | ast.AnnAssign(annotation=hint):
                left_out.update(ast.walk(hint))
            case ast.FunctionDef(returns=ast.AST() as hint):
                left_out.update(ast.walk(hint))
            case ast.JoinedStr(values=parts):
                left_out.update(part for part in parts if isinstance(part, ast.Constant))
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.Constant, ast.JoinedStr))]
    found.sort(key=lambda node: (node.lineno, node.col_offset))
    for node in found:
        if node in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                part.value if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"
                for part in node.values
            )
        elif isinstance(node.value, str):
            yield node.value


def messages() -> str:
    sources = sorted(PACKAGE.glob("src/**/*.rs")) + sorted(PACKAGE.glob("ringmain/**/*.py"))
    lines = []
    for path in sources:
        texts = texts_of_rust if path.suffix == ".rs" else texts_of_python
        found = [text for text in texts(path.read_text()) if len(text.split()) > 1]
        if found:
            lines.append(path.relative_to(PACKAGE).as_posix())
            lines.extend("    " + text.replace("\n", "\n    ") for text in found)
    return "".join(line + "\n" for line in lines)


def test_every_message_is_listed():
    found = messages()
    if os.environ.get("RINGMAIN_UPDATE_MESSAGES"):
        SNAPSHOT.write_text(found)
    assert found == SNAPSHOT.read_text(), "read the change, then run with RINGMAIN_UPDATE_MESSAGES=1"


def test_no_text_of_a_source_is_passed_over():
    rust = r'''
        // "a comment" here
        #[pyo3(signature = ("an [attribute", b))]
        let quote = ['"', '\'', b'"'];
        fn f<'a>(x: &'a str) { g("one \
            message: \"{x}\"", "second message") }
        #[cfg(test)]
        mod tests { fn f() { g("no message") } }
    '''.replace("        ", "")
    assert [text for text in texts_of_rust(rust) if " " in text] == ['one message: "{x}"', "second message"]
    python = '''
"""Documentation of a module."""
def f(x: "a hint") -> "a hint":
    """Documentation of a function."""
    raise ValueError(f"one {x.y!r} message" " of two parts" if x else "a second")
'''
    assert list(texts_of_python(python)) == ["one {x.y} message of two parts", "a second"]
