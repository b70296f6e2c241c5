package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// failure is how gateways like this one failed in public, by what id one finds it,
// and what holds here instead, as of a property.
type failure struct {
	ids   string
	words string // what went wrong; and what holds
	tests []string
	later string
}

// failures are by number: the first is 1. A number is never given to another.
var failures = []struct {
	of   string
	list []failure
}{
	{"Trust in headers", []failure{
		{"golang/go#50580, CVE-2024-45410, CVE-2026-29054, CVE-2025-48865", "A client named the proxy's own headers in `Connection`, and they were gone. What the gateway adds arrives", []string{"gateway: TestRequestOnTheWire TestProxyHeadersOnTheWire"}, ""},
		{"CVE-2021-33197", "An empty first `Connection` switched stripping off. All lines of it count", []string{"gateway: TestRequestOnTheWire TestProxyHeadersOnTheWire"}, ""},
		{"CVE-2025-64484, CVE-2026-33433, CVE-2026-52845", "`X_Tenant` was read as `X-Tenant` behind the proxy. A name with an underscore is 400", []string{"gateway: TestOddHeaderNames FuzzRequestHeader TestProxyHeadersOnTheWire"}, ""},
		{"CVE-2026-30851", "An identity header was left where there was no identity. None of an agent's passes", []string{"gateway: TestTokensOfOthersStopHere TestRequestOnTheWire TestProxyHeadersOnTheWire"}, ""},
		{"CVE-2026-40575, CVE-2026-35051, CVE-2026-54764", "Forwarding headers were believed of anybody. Only configured proxies' count, and none reaches a service", []string{"identity: TestClientAddr TestNobodyChoosesTheirAddress FuzzClientAddrAgainstAnOracle", "gateway: TestNobodyChoosesTheirAddress TestRequestOnTheWire"}, ""},
		{"CVE-2026-34457", "A health checker's `User-Agent` was let in. No header stands for a key", []string{"gateway: TestNoHeaderStandsForAKey"}, ""},
		{"CVE-2026-48710, CVE-2023-29406", "A crafted `Host` had another route judged than was served. It picks neither route nor service", []string{"gateway: TestHostNeverPicksTheUpstream TestNoHeaderStandsForAKey"}, ""},
		{"CVE-2026-41181", "A side service got credentials and cookies. Few places call out, and none with an agent's header", []string{"architecture: TestWhoCallsOut", "oauth: TestRequestsForTokens"}, ""},
	}},
	{"Credentials", []failure{
		{"CVE-2023-45289, CVE-2024-45336, CVE-2025-4673", "Credentials followed redirects. None is followed, and none that leads away is passed on", []string{"gateway: TestRedirects", "oauth: TestARedirectIsNotFollowed"}, ""},
		{"CVE-2024-6587", "A member `api_base` sent the key to any host. Nothing in a request picks one", []string{"gateway: TestNothingButTheRegistryPicksTheUpstream"}, ""},
		{"CVE-2026-34476", "A header did. Two hundred of them do not", []string{"gateway: TestNothingButTheRegistryPicksTheUpstream TestHostNeverPicksTheUpstream"}, ""},
		{"GHSA-g53w-w6mj-hrpp", "An example secret was in force, a header picked an inner route. Such secrets are refused at the start", []string{"admin: TestTokensThatAnybodyWouldTry", "vault: TestParseKEK", "gateway: TestNoHeaderStandsForAKey"}, ""},
		{"BerriAI/litellm#1356, nyroway/nyro#67", "A service's error quoted the key. Of what it repeats no piece of eight bytes with a letter and a digit gets through, in any listed spelling, cut anywhere", []string{"redact: TestEverySpellingIsMarked TestPiecesAreMarked TestChunksDoNotMatter TestEverySpellingInEveryTwo TestWordsPass", "gateway: TestTheCredentialIsNotRepeated TestAnAnswerWithoutTheCredentialIsUntouched TestEventsDoNotWaitForTheScan"}, ""},
		{"BerriAI/litellm#39757", "A 401 told why. All are the same bytes", []string{"gateway: TestRefusedAuthenticationsLookAlike TestEveryBadTokenIsTheSame401"}, ""},
		{"CVE-2022-23469", "Debug logs had credentials. At debug, of thousands of mixed requests, nothing that was planted is in any output", []string{"agentgw: TestSecretsInManyCalls TestSecretsAreWrittenNowhere"}, ""},
		{"CVE-2025-62513, CVE-2025-62705", "The audit log had bodies. Receipts have salted hashes, of which nobody guesses a PIN", []string{"vault: TestAPINIsNotGuessed", "receipts: TestParamsOpenWithTheRightBytesAndSalt"}, ""},
		{"MCP 2026-07-28", "Tokens for others were passed through. A service sees its own credential alone, an agent no `Set-Cookie`", []string{"gateway: TestTokensOfOthersStopHere TestAnswerHeaders TestProxyHeadersOnTheWire TestProxyKeys"}, ""},
		{"GHSA-3278-c88v-xrh4, CVE-2025-24030", "Diagnostics served secrets. There are none but what the operators' token opens", []string{"agentgw: TestNoOtherDoors TestOperatorsOnly TestSecretsAreWrittenNowhere"}, ""},
		{"shared cookie jars", "One agent's session was another's. No cookie is kept", []string{"gateway: TestNoCookieIsKept TestAnswerHeaders"}, ""},
	}},
	{"Identity and tenants", []failure{
		{"CVE-2026-35030", "Identities were cached under 20 characters of a token. All of it counts", []string{"oidc: TestTokensWithOneBeginning", "identity: TestKeysThatShareABeginning"}, ""},
		{"CVE-2026-71326", "Two keys of a cache were one. What names two things is never joined so that it could name two others", []string{"vault: TestPlacesAreApart TestRowsThatWereMoved", "identity: TestTenantsPrintApart TestCallersAreApart", "rules: TestPartitionsAreApart"}, ""},
		{"CVE-2026-48529", "A singleton mixed users up. 64 agents of 8 tenants get their own credential and their own answer", []string{"gateway: TestCredentialsAreNotMixedUp", "vault: TestNobodyGetsAnothers"}, ""},
		{"CVE-2025-29923", "Replies came out of order after a timeout. On a way to Redis that is slow around the timeout, and breaks, whoever asks gets his own answer or none", []string{"redisstore: TestRepliesAreTheirOwn"}, ""},
		{"Asana MCP, June 2025", "Ids were looked up without the tenant. Another's receipt is one that does not exist, and no export or proof shows it", []string{"agentgw: TestReceiptByID", "receipts: TestExportsShowNothingOfOthers TestProofShowsNothingOfOthers"}, ""},
		{"CVE-2026-71324", "A proxied `CONNECT` poisoned shared connections. Where there are no tunnels it is refused before a dial, as other methods are; what comes behind one that is refused is no request; odd answers end their connection", []string{"gateway: TestOneMethodOnly TestProxyMethods TestAnswerFraming TestTunnelIsRefusedByTheFirstStep TestWhatComesBehindARefusedConnectIsNoRequest TestNoTunnelOverHTTP2"}, ""},
		{"BerriAI/litellm#37052, #28033", "A key raised its own budget. An agent's key opens nothing of the operators', and unknown members are 400", []string{"agentgw: TestNoOtherDoors"}, ""},
		{"GHSA-qqcv-vg9f-5rr3", "One team managed another's. Nobody manages but operators; of others nothing is shown", []string{"agentgw: TestNoOtherDoors TestReceiptByID"}, ""},
		{"CVE-2026-42208", "SQL ran in the check of a key. Keys are found in memory by a hash, before any store; hostile texts name nobody", []string{"gateway: TestHostileTextsAsNames", "architecture: TestArrows"}, ""},
		{"CVE-2026-32595, CVE-2026-41263", "Time told valid names. A near miss costs what a stranger does, however many keys there are", []string{"identity: TestTimeTellsNoKey TestStrangersCostTheSameHoweverManyKeys"}, ""},
		{"CVE-2026-11717, CVE-2026-11718", "A token was taken that introspection had not confirmed. Nobody is asked: what is signed by no key of the issuer is 401, whatever the issuer would say of it", []string{"gateway: TestNobodyIsAskedWhetherATokenIsActive"}, ""},
		{"CVE-2026-44428", "A token for another audience was taken. An audience has to be named, and alone", []string{"oidc: TestWhichTokensAreTaken"}, ""},
		{"CVE-2026-40574", "`a@evil@corp` passed for one of corp. Names are equal as bytes, or not", []string{"identity: TestUsersInScope", "gateway: TestHostileTextsAsNames"}, ""},
		{"CVE-2020-26160, CVE-2025-30204, CVE-2025-27144, CVE-2024-28180, CVE-2026-34986", "Tokens confused, or exhausted, their readers. Wycheproof's are judged as it says, and what is none costs nothing", []string{"oidc: TestWycheproof TestWhichTokensAreTaken", "delegation: TestWycheproofJWS TestWhatIsNoDelegationCostsNothing"}, ""},
		{"coreos/go-oidc#482", "Random key ids flooded the issuer. It is asked once in 30 seconds", []string{"oidc: TestUnknownKeysDoNotFloodTheIssuer TestAKeyIdThatWasNotThereIsNotAskedForAgain"}, ""},
		{"CVE-2026-27896, GHSA-q382-vc8q-7jhj", "Names in JSON were equal without their case, or stood twice. Both are 400, and 318 files are read as the RFC says", []string{"gateway: TestJSONIsReadAsTheRFCSays TestParseAct TestMembersAreBounded"}, ""},
		{"an earlier gateway of this name", "A delegation could be left out. Where one is required, nothing goes without", []string{"gateway: TestOrder TestADelegatedCall TestADelegationThatDoesNotHold"}, ""},
		{"CVE-2026-54762, CVE-2026-27586", "A secret that could not be read opened the door. A start fails, a reload keeps what there was", []string{"agentgw: TestStartThatFails TestReloadOfABadFile TestARootThatDoesNotOpenStopsTheStart", "vault: TestALostKeyIsNotReplaced TestAFailedReloadKeepsWhatThereWas TestAKilledFirstStartLeavesNothing", "config: TestSecretFiles"}, ""},
	}},
	{"Addresses", []failure{
		{"CVE-2025-66490, CVE-2026-27587, CVE-2025-54576, CVE-2023-47106", "Policy and service read a path differently. A value is one encoded segment, or 400; a path that is relayed is judged as it goes out, or 400", []string{"registry: TestPathValueIsOneSegment TestPathValueRefused TestPathPartsDoNotMakeDots FuzzTarget FuzzRelay", "gateway: TestPathNeverClimbs TestPathOnTheWire TestProxyRefusesWhatIsAmbiguous TestProxyRelaysBytes TestProxyMatchesActions"}, ""},
		{"CVE-2026-30852, GHSA-wwhq-w58m-w29c", "Input was expanded twice. Braces and dollars are text", []string{"registry: TestPathValueIsOneSegment TestQuery TestBodyKeepsItsBytes TestUpstreamSeesWhatWasChecked"}, ""},
		{"CVE-2026-44430, CVE-2026-26118", "A check for private addresses missed some. All special ranges are refused, those with an IPv4 address inside too, to tunnels as to services", []string{"gateway: TestGuarded TestNoTunnelLeadsInside"}, ""},
		{"CVE-2026-5052", "A name was checked and then looked up again. What is dialled is checked, for tunnels as for services", []string{"gateway: TestANameThatTurnsPrivate"}, ""},
		{"CVE-2025-64443, CVE-2026-34742, CVE-2026-33252, CVE-2025-47910", "A page in a browser reached a local gateway. Nothing is done without a key in a header, or at an open service a credential; no page is told that it may send one, `text/plain` is 415", []string{"gateway: TestPagesAreGivenNothing TestPagesGetNothingOfAnOpenService"}, ""},
		{"CVE-2016-5386, CVE-2025-22870", "A proxy came from the environment or the request. Neither is asked", []string{"gateway: TestNoProxyIsAsked TestNothingButTheRegistryPicksTheUpstream"}, ""},
		{"CVE-2026-39821, CVE-2026-25679, CVE-2025-47912", "Hosts were read in two ways. A registry with an odd one is refused, and a tunnel to one", []string{"registry: TestBusted TestTargetsThatAreNone TestWhereTunnelsMayLead FuzzParseHostPort"}, ""},
		{"CVE-2026-56860, CVE-2025-61726", "One URL took much time and memory. Headers, members and bodies are bounded first", []string{"agentgw: TestRequestHeaderLimit", "registry: TestLargeParameters", "gateway: TestMembersAreBounded"}, ""},
		{"CVE-2022-2880, CVE-2026-39825", "Parameters were hidden in a query. What goes out is built from what was checked; a query that is relayed is the bytes that were checked, or nobody checks it", []string{"gateway: TestTokensOfOthersStopHere TestQueryOnTheWire TestProxyParameters TestProxyRefusesWhatIsAmbiguous", "registry: TestQuery FuzzRelay"}, ""},
	}},
	{"Protocols and resources", []failure{
		{"CVE-2025-22871, CVE-2022-1705, CVE-2019-16276", "Two servers saw the end of a request in two places. What can be read so and otherwise is refused and closes its connection, and nothing behind it is a request", []string{"http1: TestWhereRequestsEnd TestWhatIsRefused FuzzRequests", "hangup: TestWhatIsNoRequestIsRefused", "gateway: TestDesync TestRequestsByTheBook TestRequestFraming TestProxyRequestFraming TestHTTP2Requests TestAnswerFraming"}, ""},
		{"CVE-2026-42507", "A line end in a value made a header. Control bytes are 400", []string{"registry: TestHeaderParameters", "gateway: TestOwnHeaderParameter"}, ""},
		{"MCP 2026-07-28, headers", "A policy looked at a header, and the body said otherwise", nil, "there is no MCP yet"},
		{"MCP 2026-07-28, cacheScope", "A shared cache had private lists", nil, "there is no MCP yet, and nothing is cached"},
		{"CVE-2023-39325, CVE-2023-44487, CVE-2023-45288, CVE-2026-33814", "Streams were opened and reset faster than they were counted. No more run than may, and all slots come back", []string{"gateway: TestHTTP2RapidReset TestHTTP2ResetEndsOneStream TestHTTP2ContinuationFlood TestAServiceThatSettlesForNoFrames"}, ""},
		{"CVE-2026-26999, CVE-2026-22045, CVE-2026-56853", "Requests that never end held connections for ever. A head is bounded, and so is each silence in a body", []string{"hangup: TestAHeadIsWaitedForSoLong", "agentgw: TestNoTimeoutCutsAStream", "gateway: TestClientThatStopsSending TestHTTP2ClientThatStopsSending TestProxyAgentBreaksOff"}, ""},
		{"CVE-2024-24791", "`Expect: 100-continue` left a bad connection behind. What comes then is served", []string{"gateway: TestProxyExpectContinue TestExpectContinue TestAnswersToWhoAsks"}, ""},
		{"CVE-2026-53716", "What was compressed grew without end. Nothing is decompressed", []string{"gateway: TestRequestOnTheWire TestEventsArriveOneByOne"}, ""},
		{"CVE-2026-26998, CVE-2026-53717", "An answer was read for as long as it came. Those of token endpoints and issuers are read to a bound", []string{"oauth: TestAnEndlessAnswerIsReadToItsBound", "oidc: TestAnswersOfAnIssuer"}, ""},
		{"CVE-2023-45290, CVE-2022-41725", "Forms took memory. Where the gateway reads a body, one that is no JSON is 415", []string{"gateway: TestPagesAreGivenNothing TestProxyParameters"}, ""},
		{"CVE-2025-58186, CVE-2025-61724", "Headers and 1xx answers came without end. Both sides' headers are bounded, and so are 1xx", []string{"agentgw: TestRequestHeaderLimit", "gateway: TestLargeAnswerHeaders TestProxyTrailersAndHints"}, ""},
		{"CVE-2020-27813", "Lengths of WebSocket frames overflowed, pages of others opened connections, what was compressed grew without end. A length of over 2^53-1 is 1002, a message over the cap 1009, another's `Origin` 403; nothing is compressed, and a key in the query is 400", []string{"websocket: TestFaults FuzzStream", "gateway: TestWebSocketsEnd TestUpgradesThatAreRefused TestTheUpgradeOnTheWire TestAnswersToAnUpgrade"}, ""},
		{"CVE-2022-41721", "An upgrade to HTTP/2 was passed through. No upgrade is but to WebSocket, and that only where the service takes it", []string{"agentgw: TestHTTP2InClearText", "gateway: TestProxyMethods TestRequestOnTheWire TestHowAnUpgradeIsAskedFor TestUpgradesThatAreRefused"}, ""},
		{"modelcontextprotocol/go-sdk#1262, stacklok/toolhive#4167", "A timeout of the server cut streams. None is of a whole answer", []string{"agentgw: TestNoTimeoutCutsAStream", "gateway: TestSteadyStreamOutlivesTheStall TestSilenceIsNoStall"}, ""},
		{"launchdarkly/eventsource#78", "Writers to clients that do not read were parked for ever. They are cut, and their slots are free", []string{"gateway: TestStreamsEnd TestLastBytesStall"}, ""},
		{"golang/go#17721, golang/go#41344", "A shutdown waited for streams, or did not know of them. Streams end between two events, WebSockets behind a message with 1001, calls by themselves", []string{"gateway: TestWebSocketsEnd TestADrainWaitsForTheMessage TestDrainWaitsForTheEventBorder TestStreamsEnd TestProxyStreamsEnd", "agentgw: TestAStopWaitsForWebSockets"}, ""},
		{"WPT eventsource", "A stream of events was changed on its way. Its bytes are not, nor do they wait, wherever it is cut; what the gateway says in it is an event of its own", []string{"gateway: TestEventStreamsKeepTheirBytes TestWhatIsSaidInAStreamIsAnEventOfItsOwn TestEventsArriveOneByOne TestLongEvents TestWhatIsAStreamOfEvents TestProxyStreamsBothWays"}, ""},
		{"MCP, cancellation", "A client was gone, and the work went on. The service's request ends with it", []string{"gateway: TestStreamsEnd TestProxyStreamsEnd TestProxyAgentBreaksOff TestAHangUpBehindEarlyBytes"}, ""},
		{"CVE-2026-30827", "One host had as many addresses as it liked. An IPv6 address is its /64, one of IPv4 is one however it is written", []string{"identity: TestLimitPrefix TestClientAddr", "gateway: TestOneHostIsOneAddress"}, ""},
		{"CVE-2025-25294", "An agent wrote lines of the log. What it writes stays within one", []string{"gateway: TestNobodyWritesLogLines TestHostileTextsAsNames"}, ""},
		{"CVE-2021-36221, CVE-2026-47427", "A panic took the process, or a slot. The slot comes back, and the receipt says so", []string{"gateway: TestPanic TestPanicWhileClosing TestStreamsEnd"}, ""},
	}},
}

const (
	beginFailures = "<!-- failures: written by go test ./internal/architecture -run Failures -update -->\n"
	endFailures   = "<!-- end of failures -->\n"
)

// TestFailures: docs/failures.md says of every failure which tests hold that it does
// not happen here, each of which there is, and that they do; what has none is not
// counted among them.
func TestFailures(t *testing.T) {
	var lines []string
	all := 0
	for _, group := range failures {
		for _, f := range group.list {
			lines = append(lines, f.tests...)
			all++
		}
	}
	result := resulter(t, lines)
	var table strings.Builder
	number, holding := 0, 0
	for _, group := range failures {
		fmt.Fprintf(&table, "\n## %s\n\n| | what went wrong elsewhere, and what holds here | seen as | held by | result |\n| --- | --- | --- | --- | --- |\n", group.of)
		for _, f := range group.list {
			number++
			held, verdict := heldBy(t, f.words, f.tests, result)
			switch {
			case len(f.tests) == 0 && f.later == "":
				t.Errorf("failure %d has neither a test nor a reason", number)
			case len(f.tests) == 0:
				verdict = "*none*: " + f.later
			case verdict == "holds":
				holding++
			}
			fmt.Fprintf(&table, "| %d | %s | %s | %s | %s |\n", number, f.words, f.ids, held, verdict)
		}
	}
	if all != 67 {
		t.Errorf("%d failures", all)
	}
	writePage(t, "docs/failures.md", "Failures", beginFailures, fmt.Sprintf("\n**%d of %d.**\n", holding, all)+table.String(), endFailures)
}

// callingOut is what a file has that calls somebody.
var callingOut = regexp.MustCompile(`\.RoundTrip\(|http\.Client\{|http\.(Get|Post|Head|PostForm)\(|net\.Dial|DefaultClient|DefaultTransport|Dialer\{`)

// TestWhoCallsOut: what leaves this process for another goes through a few files,
// and what they send is looked at by tests of their own.
func TestWhoCallsOut(t *testing.T) {
	may := in("internal/gateway/forward.go", "internal/gateway/outbound.go", "internal/gateway/guard.go", "internal/oauth/token.go", "internal/oidc/fetch.go", "internal/redistest", "internal/pgtest",
		"internal/ratelimit/redisstore/connect.go",       // the operator's own Redis
		"cmd/agentgw/health.go", "cmd/agentgw/notify.go") // which ask and tell on this machine
	found := 0
	for _, folder := range []string{"cmd", "internal"} {
		if err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			if at := callingOut.Find(text); at != nil {
				found++
				if !may(name) {
					t.Errorf("%s: %s", name, at)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if found < 4 {
		t.Errorf("%d files call out", found)
	}
}
