//! The containers that the names of a distributed checkpoint lie in.

use crate::io::tree::{Object, Tree, Value};
use crate::{Result, bail, ensure};

/// Nested dictionaries and lists made of paths.
#[derive(Default)]
pub(super) struct Nest {
    nodes: Vec<Vec<(Step, Child)>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Step {
    Key(String),
    Index(i64),
}

#[derive(Clone, Copy)]
enum Child {
    Leaf(Value),
    Node(usize),
}

impl Nest {
    /// Puts a value where its path says, or under its own name.
    pub(super) fn add(
        &mut self,
        meta: &Tree,
        path: Option<Value>,
        name: &str,
        value: Value,
    ) -> Result<()> {
        let mut steps = steps_of(meta, path, name)?;
        let last = steps.pop().unwrap_or_else(|| Step::Key(name.to_owned()));
        if self.nodes.is_empty() {
            self.nodes.push(Vec::new());
        }
        let mut at = 0;
        for step in steps {
            // Neighbours mostly share the path, so the newest entry is looked at first.
            let mut newest = self.nodes[at].iter().rev();
            at = match newest.find(|c| c.0 == step) {
                Some((_, Child::Node(n))) => *n,
                Some((_, Child::Leaf(_))) => {
                    bail!(Checkpoint, "'{name:.200}' lies inside another value")
                }
                None => self.grown(at, step),
            };
        }
        self.nodes[at].push((last, Child::Leaf(value)));
        Ok(())
    }

    /// A new node inside another.
    fn grown(&mut self, at: usize, step: Step) -> usize {
        let n = self.nodes.len();
        self.nodes.push(Vec::new());
        self.nodes[at].push((step, Child::Node(n)));
        n
    }

    /// The containers, with all values in them.
    pub(super) fn build(&self, tree: &mut Tree) -> Value {
        // Children were made after their parents, so backwards every child is there before it is needed.
        let mut made = vec![Value::None; self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate().rev() {
            made[i] = container(node, &made, tree);
        }
        match made.first() {
            Some(&root) => root,
            None => tree.push_dict(Object::Dict, Vec::new()),
        }
    }
}

/// A list, where the steps are the numbers from 0 on, else a dictionary.
fn container(node: &[(Step, Child)], made: &[Value], tree: &mut Tree) -> Value {
    let value = |c: Child| match c {
        Child::Leaf(v) => v,
        Child::Node(n) => made[n],
    };
    let mut indexed: Vec<(i64, Value)> = Vec::new();
    for (step, child) in node {
        if let Step::Index(n) = step {
            indexed.push((*n, value(*child)));
        }
    }
    indexed.sort_by_key(|e| e.0);
    let list = !node.is_empty()
        && indexed.len() == node.len()
        && indexed.iter().zip(0i64..).all(|(e, i)| e.0 == i);
    if list {
        let items = indexed.into_iter().map(|e| e.1).collect();
        return tree.push_list(Object::List, items);
    }
    let mut pairs = Vec::with_capacity(node.len());
    for (step, child) in node {
        let key = match step {
            Step::Key(k) => tree.push_str(k),
            Step::Index(n) => Value::Int(*n),
        };
        pairs.push((key, value(*child)));
    }
    tree.push_dict(Object::Dict, pairs)
}

fn steps_of(meta: &Tree, path: Option<Value>, name: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for &step in path.and_then(|p| meta.tuple(p)).unwrap_or(&[]) {
        steps.push(match (step, meta.str(step)) {
            (_, Some(key)) => Step::Key(key.to_owned()),
            (Value::Int(n), _) => Step::Index(n),
            _ => bail!(
                Checkpoint,
                "the path of '{name:.200}' is not of names and numbers"
            ),
        });
    }
    ensure!(
        steps.len() < 200,
        Checkpoint,
        "the path of '{name:.200}' is too long"
    );
    Ok(steps)
}
