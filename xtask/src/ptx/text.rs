//! The text of a PTX module: its functions, what they refer to, and what is counted in them.

use std::collections::{BTreeSet, HashMap};

/// A module, cut into its top-level statements.
#[derive(Debug)]
pub struct Module<'t> {
    statements: Vec<Statement<'t>>,
}

/// A statement: a directive, a variable, a declaration or a function.
#[derive(Debug)]
struct Statement<'t> {
    kind: Kind,
    /// The name that it declares; empty for a directive.
    name: &'t str,
    lines: Vec<&'t str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `.version`, `.target`, `.address_size`.
    Directive,
    /// A variable that the host can find by its name.
    VisibleVariable,
    Variable,
    /// Something that this module has not.
    Extern,
    /// A function's name, ahead of its body.
    Declaration,
    Function,
    /// A function that the host can launch.
    Entry,
}

/// A module's text with 0 in the place of each function's address.
///
/// Where one is taken, ptxas may drop instructions of other functions (papers/diary/gpu.md, "A fault in the compiled
/// engine"). Those here are in the messages of panics, which a kernel never formats; a module with a call by
/// address is refused.
pub fn without_function_addresses(text: &str) -> String {
    let module = Module::parse(text);
    let functions: BTreeSet<&str> = [Kind::Declaration, Kind::Function, Kind::Extern]
        .into_iter()
        .flat_map(|kind| module.names(kind))
        .collect();
    let lines = text.lines().map(|line| {
        let taken = line.trim().strip_prefix("mov.").and_then(|rest| {
            let (_register, operand) = rest.strip_suffix(';')?.split_once(',')?;
            functions.contains(operand.trim()).then_some(operand)
        });
        match taken {
            Some(operand) => line.replace(operand, " 0"),
            None => line.into(),
        }
    });
    lines.flat_map(|line| [line, "\n".into()]).collect()
}

/// What is counted in a kernel and all that it calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstructionCounts {
    /// Fences that order what comes before, or after, or both.
    pub release: u32,
    pub acquire: u32,
    pub acq_rel: u32,
    pub sc: u32,
    /// Stores to global memory, doorbells among them.
    pub stores: u32,
    /// Atomic read-modify-writes.
    pub atomics: u32,
    /// Loads and stores of a thread's local memory.
    pub local: u32,
    /// All instructions.
    pub instructions: u32,
    /// Atomic bitwise ors: Rust-CUDA makes one of a load by core's atomics, and it writes the word.
    pub ors: u32,
}

impl<'t> Module<'t> {
    /// Reads a module, without its comments and indentation.
    pub fn parse(text: &'t str) -> Self {
        let mut statements = Vec::new();
        let mut lines: Vec<&str> = Vec::new();
        let mut depth = 0;
        let code = text.lines().map(|line| match line.split_once("//") {
            Some((code, _comment)) => code.trim(),
            None => line.trim(),
        });
        for line in code.filter(|line| !line.is_empty()) {
            lines.push(line);
            let body_closed = line.ends_with('}');
            depth += line.matches('{').count();
            depth -= line.matches('}').count();
            let directive = lines.len() == 1
                && [".version", ".target", ".address_size"]
                    .iter()
                    .any(|word| line.starts_with(word));
            if depth == 0 && (directive || body_closed || line.ends_with(';')) {
                statements.push(Statement::new(std::mem::take(&mut lines)));
            }
        }
        Self { statements }
    }

    /// The names of what the module lacks.
    pub fn externs(&self) -> Vec<&'t str> {
        self.names(Kind::Extern)
    }

    /// The names of the kernels.
    pub fn entries(&self) -> Vec<&'t str> {
        self.names(Kind::Entry)
    }

    /// The names of the functions whose address some statement takes: all that stand there but not in a call.
    pub fn addressed(&self) -> BTreeSet<&'t str> {
        let functions: BTreeSet<&str> = [Kind::Declaration, Kind::Function, Kind::Extern]
            .into_iter()
            .flat_map(|kind| self.names(kind))
            .collect();
        let mut addressed = BTreeSet::new();
        for statement in &self.statements {
            let lines = statement.lines.iter();
            for word in lines
                .filter(|line| !is_call(line))
                .flat_map(|line| identifiers(line))
            {
                if word != statement.name && functions.contains(word) {
                    addressed.insert(word);
                }
            }
        }
        addressed
    }

    /// The names of functions that call others by their addresses, which name the prototype of what they call.
    pub fn indirect_callers(&self) -> Vec<&'t str> {
        let calls = |line: &&str| is_call(line) && line.contains("prototype_");
        let callers = self
            .statements
            .iter()
            .filter(|statement| statement.lines.iter().any(calls));
        callers.map(|statement| statement.name).collect()
    }

    fn names(&self, kind: Kind) -> Vec<&'t str> {
        let of_kind = self.statements.iter().filter(|s| s.kind == kind);
        of_kind.map(|statement| statement.name).collect()
    }

    /// What is counted in a kernel and in all functions that it may call.
    pub fn counts(&self, entry: &str) -> InstructionCounts {
        let reached = self.reached(BTreeSet::from([entry]));
        let mut counts = InstructionCounts::default();
        for statement in &self.statements {
            if reached.contains(statement.name) {
                statement.lines.iter().for_each(|line| counts.count(line));
            }
        }
        counts
    }

    /// The module's text with these kernels alone, and what they need.
    pub fn with_entries(&self, entries: &[&str]) -> String {
        let reached = self.reached(entries.iter().copied().collect());
        let kept = self.statements.iter().filter(|statement| {
            matches!(statement.kind, Kind::Directive | Kind::VisibleVariable)
                || reached.contains(statement.name)
        });
        let lines = kept.flat_map(|statement| &statement.lines);
        lines.flat_map(|line| [*line, "\n"]).collect()
    }

    /// All names that these names' statements refer to, directly or not.
    fn reached<'n>(&self, from: BTreeSet<&'n str>) -> BTreeSet<&'n str>
    where
        't: 'n,
    {
        let mut by_name: HashMap<&str, Vec<&Statement<'t>>> = HashMap::new();
        for statement in &self.statements {
            by_name.entry(statement.name).or_default().push(statement);
        }
        let mut reached: BTreeSet<&'n str> = from.clone();
        let mut pending: Vec<&'n str> = from.into_iter().collect();
        while let Some(name) = pending.pop() {
            let statements = by_name.get(name).into_iter().flatten();
            let words = statements.flat_map(|statement| statement.lines.iter());
            for word in words.flat_map(|line| identifiers(line)) {
                if by_name.contains_key(word) && reached.insert(word) {
                    pending.push(word);
                }
            }
        }
        reached
    }
}

impl<'t> Statement<'t> {
    fn new(lines: Vec<&'t str>) -> Self {
        let words: Vec<&str> = lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        let has = |word: &str| {
            let head = words.iter().take_while(|word| !word.starts_with('{'));
            head.clone().any(|candidate| *candidate == word)
        };
        let is_function = has(".func") || has(".entry");
        let has_body = lines.iter().any(|line| line.starts_with('{'));
        let kind = match () {
            () if has(".extern") => Kind::Extern,
            () if has(".entry") && has_body => Kind::Entry,
            () if is_function && has_body => Kind::Function,
            () if is_function => Kind::Declaration,
            () if has(".visible") => Kind::VisibleVariable,
            () if has(".global") || has(".shared") || has(".const") => Kind::Variable,
            () => Kind::Directive,
        };
        let name = match kind {
            Kind::Directive => "",
            _ if is_function => function_name(&lines),
            _ => variable_name(&lines),
        };
        Self { kind, name, lines }
    }
}

/// The name in `.func (result) name (parameters)` or `.entry name(parameters)`.
fn function_name<'t>(lines: &[&'t str]) -> &'t str {
    let mut in_parentheses = false;
    for line in lines {
        for word in line.split_inclusive([' ', '\t', '(', ')', ',']) {
            let name = word.trim_end_matches([' ', '\t', '(', ')', ',']);
            let is_name = !name.is_empty() && !name.starts_with(['.', '"']);
            if is_name && !in_parentheses {
                return name;
            }
            in_parentheses = match word.chars().last() {
                Some('(') => true,
                Some(')') => false,
                _ => in_parentheses,
            };
        }
    }
    ""
}

/// The name in `.global .align 8 .u64 name[4] = …`: the first word that is neither a directive nor a number.
fn variable_name<'t>(lines: &[&'t str]) -> &'t str {
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    words
        .flat_map(identifiers)
        .find(|word| !word.starts_with(|c: char| c == '.' || c.is_ascii_digit()))
        .unwrap_or("")
}

/// Whether a line is a call, with or without a predicate before it.
fn is_call(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let instruction = words.find(|word| !word.starts_with('@')).unwrap_or("");
    instruction == "call" || instruction.starts_with("call.")
}

/// The words of a line that may be names; directives keep their point.
fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == '.'))
        .filter(|word| !word.is_empty())
}

impl InstructionCounts {
    fn count(&mut self, line: &str) {
        // An instruction may have a predicate, `@%p1`, or a brace of inline assembly before it.
        let mut words = line
            .split_whitespace()
            .filter(|word| !word.starts_with(['@', '{']));
        let Some(instruction) = words.next() else {
            return;
        };
        let parts: Vec<&str> = instruction.trim_end_matches(';').split('.').collect();
        let is = |part: &str| parts.contains(&part);
        // Neither a directive, nor a label, nor a line of a call's lists.
        let is_instruction = instruction.starts_with(|c: char| c.is_ascii_lowercase())
            && (instruction.ends_with(';') || parts.len() > 1 || line.contains(' '))
            && !instruction.ends_with([',', ':']);
        self.instructions += u32::from(is_instruction);
        if parts[0] == "atom" || parts[0] == "red" {
            self.ors += u32::from(is("or"));
        }
        match parts[0] {
            "fence" if is("release") => self.release += 1,
            "fence" if is("acquire") => self.acquire += 1,
            "fence" if is("acq_rel") => self.acq_rel += 1,
            "fence" | "membar" => self.sc += 1,
            "ld" | "st" if is("local") => self.local += 1,
            "st" if !is("param") && !is("shared") => self.stores += 1,
            "atom" | "red" if !is("shared") => self.atomics += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODULE: &str = r"
//
// Generated
//
.version 8.6
.target sm_90
.address_size 64

                                        // Start of file scope inline assembly
.shared .align 8 .b8 scratch[136];
                                        // End of file scope inline assembly
.func  (.param .b64 func_retval0) helper
(
	.param .b64 helper_param_0
)
;
.func cold
()
.noreturn;
.visible .global .align 8 .u64 PANIC;
.global .align 1 .b8 text[3] = {97, 98, 99};
.global .align 1 .b8 other_text[2] = {97, 98};
                                        // -- Begin function first
.visible .entry first(
	.param .u64 first_param_0,
	.param .align 8 .b8 first_param_1[16]
)                                       // @first
{
	.reg .b64 	%rd<5>;
// %bb.0:
	ld.param.b64 	%rd1, [first_param_0];
	// begin inline asm
	fence.release.sys;
	// end inline asm
	@%p1 st.mmio.relaxed.sys.global.u64 [%rd1], %rd2;
	{ // callseq 0, 0
	.param .b64 param0;
	st.param.b64 	[param0], %rd1;
	call.uni (retval0), helper, (param0);
	} // callseq 0
	st.local.b64 [%SP], %rd1;
	st.shared.b64 [scratch], %rd1;
	ret;
                                        // -- End function
}
.visible .entry second()
{
	fence.acq_rel.gpu;
	fence.sc.cta;
	atom.acq_rel.gpu.global.add.u64 %rd1, [%rd2], %rd3;
	mov.b64 %rd1, other_text;
	ret;
}
.func  (.param .b64 func_retval0) helper(
	.param .b64 helper_param_0
)
{
	st.global.v2.b64 [%rd1], {%rd2, %rd3};
	fence.acquire.gpu;
	@%p2 bra 	$L__BB0_2;
	call.uni cold, ();
$L__BB0_2:
	ret;
}
.func cold()
.noreturn
{
	mov.b64 %rd1, text;
	st.b32 [%rd1], %r1;
	trap;
}
";

    #[test]
    fn finds_kernels_and_what_is_missing() {
        let module = Module::parse(MODULE);
        assert_eq!(module.entries(), ["first", "second"]);
        assert!(module.externs().is_empty());
        let lacking =
            format!("{MODULE}.extern .func (.param .b32 r) memcpy\n(\n.param .b64 a\n)\n;\n");
        assert_eq!(Module::parse(&lacking).externs(), ["memcpy"]);
    }

    #[test]
    fn counts_what_a_kernel_and_its_callees_do() {
        let module = Module::parse(MODULE);
        let first = InstructionCounts {
            release: 1,
            acquire: 1,
            // The doorbell, the vector and the one behind two calls; neither parameters nor shared memory.
            stores: 3,
            local: 1,
            // 8 of its own, 5 of `helper`, 3 of `cold`.
            instructions: 16,
            ..InstructionCounts::default()
        };
        assert_eq!(module.counts("first"), first);
        let second = InstructionCounts {
            acq_rel: 1,
            sc: 1,
            atomics: 1,
            instructions: 5,
            ..InstructionCounts::default()
        };
        assert_eq!(module.counts("second"), second);
        let load = MODULE.replace("global.add.u64", "global.or.b64");
        assert_eq!(
            Module::parse(&load).counts("second"),
            InstructionCounts { ors: 1, ..second }
        );
    }

    #[test]
    fn takes_no_address_of_a_function() {
        let addressed = MODULE.replace("mov.b64 %rd1, text;", "mov.b64 \t%rd1, helper;");
        assert_eq!(Module::parse(MODULE).addressed(), BTreeSet::new());
        assert_eq!(
            Module::parse(&addressed).addressed(),
            BTreeSet::from(["helper"])
        );
        let text = without_function_addresses(&addressed);
        assert_eq!(Module::parse(&text).addressed(), BTreeSet::new());
        assert_eq!(text, addressed.replace("%rd1, helper;", "%rd1, 0;"));
        let table = format!("{MODULE}.global .align 8 .u64 table[1] = {{generic(helper)}};\n");
        assert_eq!(
            Module::parse(&table).addressed(),
            BTreeSet::from(["helper"])
        );
    }

    #[test]
    fn finds_who_calls_by_address() {
        assert!(Module::parse(MODULE).indirect_callers().is_empty());
        let by_address = MODULE.replace(
            "call.uni cold, ();",
            "call (retval0), %rd3, (param0), prototype_3;",
        );
        assert_eq!(Module::parse(&by_address).indirect_callers(), ["helper"]);
    }

    #[test]
    fn keeps_of_a_module_what_some_kernels_need() {
        let text = Module::parse(MODULE).with_entries(&["second"]);
        for kept in [".version 8.6", "PANIC", ".entry second", "other_text[2]"] {
            assert!(text.contains(kept), "{kept} is lost");
        }
        for left_out in ["first", "helper", "cold", "scratch", " text[3]", "//", "\t"] {
            assert!(!text.contains(left_out), "{left_out} is still there");
        }
        let whole = Module::parse(MODULE).with_entries(&["first", "second"]);
        for kept in ["helper", "cold", "scratch", " text[3]"] {
            assert!(whole.contains(kept), "{kept} is lost");
        }
        assert_eq!(
            Module::parse(&whole).counts("first"),
            Module::parse(MODULE).counts("first")
        );
    }
}
