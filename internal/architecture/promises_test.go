package architecture

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "run the tests that docs/limits.md, docs/receipts-properties.md and docs/failures.md name, and write what came of it there")

// promise is what limits promise in the words of docs/limits.md, and the tests that
// hold it, as "package: Test Test/Sub". Each is one that fails when the promise is
// broken.
type promise struct {
	words string
	tests []string
}

var promises = []struct {
	of   string
	list []promise
}{
	{"Buckets", []promise{
		{"No span of time admits more than burst + span / interval, and none that allows it fewer", []string{"ratelimit: TestContract/NeverMoreThanTheLimit TestNeverMoreThanTheLimit"}},
		{"A full bucket admits its burst at once, and the next call one interval later", []string{"ratelimit: TestDecideWholeDomain TestContract/ReadingsAreOfTheDecision"}},
		{"A crowd at one bucket gets the burst, exactly", []string{"ratelimit: TestContract/ACrowdGetsTheBurst"}},
		{"Clocks that disagree, or run backwards, give nobody a token", []string{"ratelimit: TestClocksApart TestNeverMoreThanTheLimit TestStaleCallsMintNothingAtBirth"}},
		{"A call that read the clock before others had their turn is not refused for what those took", []string{"ratelimit: TestAnOlderTimeFindsNobodysTokensGone TestNeverMoreThanTheLimit"}},
		{"A key has one bucket in whichever header it is sent", []string{"gateway: TestOneKeyInAnyHeader", "ratelimit: TestContract/ANameIsOneBucket"}},
		{"Numbers that cannot be a limit are refused when they are read, with their place; none is taken for no limit", []string{"gateway: FuzzLimitNumbers", "ratelimit: TestNewLimit TestEvery FuzzNewLimit"}},
		{"A call that costs more than a bucket ever holds is refused for good, and no cost gives anything", []string{"ratelimit: TestDecideEdges"}},
	}},
	{"Refusals", []promise{
		{"A call takes a token of every limit and a slot of every cap, or nothing but its key's token", []string{"ratelimit: TestContract/AllOrNothing TestContract/AgainstNaiveAccounts TestContract/RulesAreAllOrNothing"}},
		{"One that is refused for want of a slot takes nothing: every token is back, to the nanosecond", []string{"ratelimit: TestContract/ConcurrencyRefusalsAreFree TestConcurrencyRefusalRestoresEveryToken TestRefundAtOnceIsExact"}},
		{"A token that is given back later lets no more through than had the call not been, and counts once", []string{"ratelimit: TestRefundStories TestNeverMoreThanTheLimit TestRefundsWithholdNoMoreThanTime TestRefundsByAnyClock"}},
		{"Of what is given back no more is withheld than what was refilled of it meanwhile: less than a token where no more time passed, and nothing of who stands behind others", []string{"ratelimit: TestContract/RefundsWithholdWhatTimePaid TestRefundsWithholdNoMoreThanTime TestRefundLosesLessThanAToken"}},
		{"The wait that is told is enough for who is alone, and not a nanosecond of it too long", []string{"ratelimit: TestContract/WaitIsTrue", "gateway: TestALoneAgentIsRefusedOnce"}},
		{"The fields say whole seconds, never fewer than the wait and longer by a second or a fifth at most", []string{"gateway: TestHintKeepsItsBound TestHintForASlot"}},
		{"Where several limits refuse all are named, and the longest wait is told", []string{"gateway: TestSeveralLimitsRefuse"}},
		{"A crowd that was refused and obeys comes back spread", []string{"gateway: TestARefusedCrowdComesBackSpread"}},
	}},
	{"Slots", []promise{
		{"No cap is passed by one, of tenant, service or process", []string{"ratelimit: TestContract/PeakNeverExceedsTheCap TestContract/ASharedSlotIsOne"}},
		{"A slot comes back once, whatever becomes of the call", []string{"ratelimit: TestContract/ReleaseIsOnce TestContract/ReleaseAfterPanic TestLostTicket", "gateway: TestStreamsEnd"}},
		{"Concurrent calls of a tenant are decided as if they had come one after the other", []string{"ratelimit: TestContract/ATenantIsLinearizable TestContract/ATenantIsLinearizableInTime TestContract/AKeyIsLinearizable TestContract/AKeyIsLinearizableAcrossLimits"}},
		{"Who waits for a slot is served in order, pays once, waits no longer than the bound, and leaves nothing behind", []string{"ratelimit: TestContract/FirstComeFirstServed TestContract/NobodyOvertakes TestContract/TokensAreTakenOnce TestContract/WaitingIsBounded TestContract/LeavingGivesAllBack TestContract/QueueAgainstANaiveBook TestContract/AQueueIsLinearizable"}},
		{"Tenants that wait share the time of the slots by weight, however long their calls last, each pool by itself; who comes is served at once, and nobody pays for what nobody wanted", []string{"ratelimit: TestSharesAreByWeight TestContract/SlotsAreSharedByTime TestContract/APoolHasTurnsOfItsOwn TestContract/NobodyPaysForWhatNobodyWanted", "gateway: TestSlotsAreSharedByWeight"}},
	}},
	{"Neighbours", []promise{
		{"A tenant far beyond its limit costs another not one call", []string{"agentgw: TestNoisyNeighbour", "ratelimit: TestContract/ATenantIsNotDrainedByOneKey"}},
		{"A crowd of strangers takes nothing from who is registered, and grows no memory", []string{"ratelimit: TestAMillionCallers", "gateway: TestACrowdAtTheDoor"}},
		{"Nor does one at an open service, which has any number of names: not from whom an issuer knows either", []string{"ratelimit: TestContract/CallersWait", "gateway: TestAFloodOfOpenCallers TestStrangersDoNotCrowdOutWhomAnIssuerKnows"}},
	}},
	{"Tables", []promise{
		{"What is forgotten to make room decides the same when it comes again", []string{"ratelimit: TestForgettingIsInvisible TestEvictionChangesNoVerdict"}},
		{"A drained bucket never comes back full, however many pass through a table", []string{"ratelimit: TestDrainedNeverComesBackFull TestAMillionCallers TestSharingGivesNobodyMore"}},
		{"An entry with calls in flight stays, blocks nobody, and costs newcomers nothing", []string{"ratelimit: TestLongCallKeepsItsEntry TestPinnedTailBlocksNothing TestRoomIsMadeInAFewLooks", "gateway: TestCallsInFlightBlockNobody"}},
		{"After a day of calls all that is in flight is open, the table is within its bound, and a call allocates nothing", []string{"ratelimit: TestADay TestCallsAllocateNothing"}},
	}},
	{"Change", []promise{
		{"A changed limit holds for the next call of everybody and mints nothing", []string{"ratelimit: TestContract/ChangesOfLimit TestChangesMintNothing", "agentgw: TestReloadKeepsWhatWasSpent"}},
		{"A token that is given back after its limit changed, once or often, is worth a token of the new limit, and lets no more through than had the call not been", []string{"ratelimit: TestRefundsAcrossChanges TestRefundsAcrossChangesByAnyClock TestRefundsAcrossChangesStories TestContract/RefundsAcrossChangesMintNothing", "gateway: TestLeavingAfterAReloadGivesAllBack"}},
		{"A lowered cap lets what runs finish and admits none until below; a raised one admits at once", []string{"ratelimit: TestContract/ChangesOfCap", "agentgw: TestReloadKeepsSlots"}},
		{"Reloads under load fail no call; each is decided by the file under which it came", []string{"agentgw: TestReloadsUnderLoad"}},
	}},
}

// folders are where the packages of promises live.
var folders = map[string]string{
	"redisstore": "internal/ratelimit/redisstore",
	"ratelimit":  "internal/ratelimit", "hangup": "internal/hangup", "http1": "internal/http1", "gateway": "internal/gateway", "receipts": "internal/receipts", "receiptindex": "internal/receiptindex", "redact": "internal/redact", "identity": "internal/identity", "registry": "internal/registry", "rules": "internal/rules", "delegation": "internal/delegation", "oauth": "internal/oauth", "oidc": "internal/oidc", "architecture": "internal/architecture", "admin": "internal/admin", "config": "internal/config", "vault": "internal/vault", "store": "internal/store", "websocket": "internal/websocket", "agentgw": "cmd/agentgw",
}

const (
	beginPromises = "<!-- promises: written by go test ./internal/architecture -run Promises -update -->\n"
	endPromises   = "<!-- end of promises -->\n"
)

// TestPromises: docs/limits.md says of every promise which tests hold it, each of
// which there is, and that they do.
func TestPromises(t *testing.T) {
	var lines []string
	for _, group := range promises {
		for _, p := range group.list {
			lines = append(lines, p.tests...)
		}
	}
	result := resulter(t, lines)
	var table strings.Builder
	for _, group := range promises {
		fmt.Fprintf(&table, "\n## %s\n\n| promise | held by | result |\n| --- | --- | --- |\n", group.of)
		for _, p := range group.list {
			held, verdict := heldBy(t, p.words, p.tests, result)
			fmt.Fprintf(&table, "| %s | %s | %s |\n", p.words, held, verdict)
		}
	}
	writePage(t, "docs/limits.md", "Promises", beginPromises, table.String(), endPromises)
}

// resulter says what comes of the tests that these lines name: where the pages are
// written they are run, and else they have to be there.
func resulter(t *testing.T, lines []string) func(pkg, test string) string {
	t.Helper()
	have, tops := map[string]map[string]bool{}, map[string]map[string]bool{}
	for name, folder := range folders {
		have[name], tops[name] = testsIn(t, folder), map[string]bool{}
	}
	for sub := range subtests(t, "internal/ratelimit/limitertest") {
		have["ratelimit"]["TestContract/"+sub] = true
	}
	for _, line := range lines {
		pkg, tests, _ := strings.Cut(line, ": ")
		for _, test := range strings.Fields(tests) {
			top, _, _ := strings.Cut(test, "/")
			tops[pkg][top] = true
		}
	}
	came := map[string]map[string]string{}
	return func(pkg, test string) string {
		switch {
		case !have[pkg][test]:
			return "missing"
		case !*update:
			return "holds"
		case came[pkg] == nil:
			came[pkg] = run(t, folders[pkg], slices.Sorted(maps.Keys(tops[pkg])))
		}
		if got := came[pkg][test]; got != "" {
			return got
		}
		return "fails"
	}
}

// heldBy names the tests of a promise, and says what came of them.
func heldBy(t *testing.T, words string, lines []string, result func(pkg, test string) string) (held, verdict string) {
	t.Helper()
	var names []string
	verdict = "holds"
	for _, line := range lines {
		pkg, tests, _ := strings.Cut(line, ": ")
		for _, test := range strings.Fields(tests) {
			got := result(pkg, test)
			if got == "missing" {
				t.Errorf("%q: there is no %s in %s", words, test, folders[pkg])
			}
			if got != "holds" {
				verdict = "**" + got + "**"
			}
			names = append(names, "`"+test+"`")
		}
	}
	return strings.Join(names, ", "), verdict
}

// writePage puts a table in its place on a page, or says that it is not there.
func writePage(t *testing.T, page, test, begin, table, end string) {
	t.Helper()
	file := filepath.Join(root, page)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s has no place for the table", page)
	}
	want := before + begin + table + "\n" + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(text) != want {
		t.Errorf("%s is out of step: go test ./internal/architecture -run %s -update", page, test)
	}
}

// run runs the tests of a folder, fuzz targets with their seeds alone, and says what
// came of each. One that leaves itself out holds nothing.
func run(t *testing.T, folder string, tests []string) map[string]string {
	c := exec.Command("go", "test", "-tags", "nomsgpack", "-count", "1", "-v", "-timeout", "30m", "-run", "^("+strings.Join(tests, "|")+")$", "./"+folder)
	c.Dir = root
	out, err := c.CombinedOutput()
	came := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`).FindAllStringSubmatch(string(out), -1) {
		came[m[2]] = map[string]string{"PASS": "holds", "FAIL": "fails", "SKIP": "left out"}[m[1]]
	}
	if err != nil {
		t.Logf("%s\n%s", folder, out)
	}
	return came
}

// testsIn are the tests and fuzz targets of a folder, by name.
func testsIn(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	parsed, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range parsed {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// subtests are the names in the list of what every limiter owes.
func subtests(t *testing.T, folder string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, folder, "limitertest.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if l, ok := n.(*ast.CompositeLit); ok && len(l.Elts) == 2 {
			if name, ok := l.Elts[0].(*ast.BasicLit); ok && name.Kind == token.STRING {
				names[strings.Trim(name.Value, `"`)] = true
			}
		}
		return true
	})
	return names
}
