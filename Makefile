# agentgw: see README.md. Every target but interop works in a clean clone with only Go.
TAGS    := nomsgpack
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
GOFLAGS_BUILD := -trimpath -tags $(TAGS) -ldflags "-s -w -X main.version=$(VERSION)"
GITLEAKS := github.com/zricethezav/gitleaks/v8@v8.30.1
H2SPEC := github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

.PHONY: build demo test interop drills check bench compare
build: ## one static binary, ./agentgw
	CGO_ENABLED=0 go build $(GOFLAGS_BUILD) -o agentgw ./cmd/agentgw

demo: build ## a gateway with a tool service behind it, and curl lines to try
	./agentgw demo

test: ## all tests under the race detector (needs a C compiler)
	@command -v cc >/dev/null || { echo "make test: no C compiler found: the race detector needs one (Debian: apt-get install gcc)"; exit 1; }
	@.ci/tools bash curl jq openssl redis-server postgresql
	go test -tags $(TAGS) -race -timeout 15m ./...
	@[ "$$(uname)" = Linux ] && [ "$$(id -u)" = 0 ] || echo "make test: a disk that is really full was not tried: that takes root on Linux, which can mount a small one"
	@echo "make test: a file system that gives up its journal was not tried: make drills as root on Linux tries it"
	@echo "make test: the second verifier of receipts (tools/verify.py), npm's jose and oidc-provider, Python and Node as clients of a proxy, the official SDKs of OpenAI and Anthropic, four WebSocket peers, h2spec and gitleaks were not asked, and the lines of docs/websocket.md not tried; make interop does both"

interop: ## programs that nobody here wrote, or that share no code with ours: a second verifier of receipts, npm's jose for delegations, npm's oidc-provider as an issuer and as where accounts are, the clients of Python and Node for a proxy, the official SDKs of OpenAI and Anthropic for Go and JavaScript, and WebSocket as npm's ws and undici, Python's websockets and coder/websocket speak it; gitleaks, for keys that leaked; h2spec, beside net/http; needs Python with cryptography, and Node
	@python=$$(.ci/python) && SECOND_VERIFIER_PYTHON=$$python DRILLS=full go test -tags $(TAGS) -count=1 -timeout 10m -v -run SecondVerifier ./internal/receipts
	@node=$$(.ci/node) && INTEROP_NODE=$$node go test -tags $(TAGS) -count=1 -timeout 10m -v -run 'Jose|OIDCProvider|WebSocketPage' ./internal/delegation ./internal/oidc ./cmd/agentgw
	@python=$$(.ci/python) && node=$$(.ci/node) && INTEROP_PYTHON=$$python INTEROP_NODE=$$node go test -tags $(TAGS) -count=1 -timeout 5m -v -run ProgramsThatKnowAProxy ./cmd/agentgw
	@sdks=$$(mktemp -d) && trap 'rm -rf "$$sdks"' EXIT && (cd interop/go && go vet ./... && go build -o "$$sdks" ./sdks) && node=$$(.ci/node) && INTEROP_NODE=$$node INTEROP_SDKS=$$sdks/sdks go test -tags $(TAGS) -count=1 -timeout 10m -parallel 16 -v -run OfficialSDKs ./internal/gateway
	@peer=$$(mktemp -d) && trap 'rm -rf "$$peer"' EXIT && (cd interop/go && go build -o "$$peer" ./wspeer) && node=$$(.ci/node) && python=$$(.ci/websockets) && INTEROP_NODE=$$node INTEROP_WSPEER=$$peer/wspeer INTEROP_WEBSOCKETS=$$python go test -tags $(TAGS) -count=1 -timeout 10m -v -run WebSocketPeers ./internal/gateway
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && GOBIN=$$bin go install $(GITLEAKS) && GITLEAKS=$$bin/gitleaks go test -tags $(TAGS) -count=1 -v -run Gitleaks ./internal/identity
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && GOBIN=$$bin go install $(H2SPEC) && H2SPEC=$$bin/h2spec go test -tags $(TAGS) -count=1 -v -run H2Spec ./cmd/agentgw

drills: ## the same tests with the counts that it takes to believe them, about an hour; those of a fleet, its Redis and its PostgreSQL (Replica, StoreGoesAway, OfAFleet, DatabaseGoesAway, redisstore) print a table at the end
	@table=$$(mktemp) && trap 'rm -f "$$table"' EXIT; export DRILLS=full DRILLS_TABLE=$$table; missed=0; \
	go test -tags $(TAGS) -timeout 90m -p 1 -v -run 'Kill|StreamsEnd|TunnelsEnd|TunnelsThatAreCut|WebSocketsEnd|AnswersToAnUpgrade|NoAnswerIsCut|StrangersMakeNoSeries|NoisyNeighbour|ReloadsUnderLoad|ReloadsRace|OldViews|ACrowdAtTheDoor|FloodOfOpenCallers|ComesBackSpread|ALoneAgent|SharedByWeight|NotMixedUp|ManyCalls|SlowClients|RapidReset|Replica|StoreGoesAway|OfAFleet|DatabaseGoesAway|TheImageRuns' ./cmd/agentgw ./internal/gateway || missed=1; \
	go test -tags $(TAGS) -timeout 90m ./internal/ratelimit -rapid.checks 2000 || missed=1; \
	go test -tags $(TAGS) -timeout 90m -p 1 ./internal/ratelimit/redisstore ./internal/receipts ./internal/receiptindex ./internal/registry ./internal/identity ./internal/delegation || missed=1; \
	cat "$$table"; exit $$missed

check: ## format, vet, staticcheck, architecture rules, go.mod and go.sum in step
	@out=$$(gofmt -l .); if [ -n "$$out" ]; then echo "gofmt these files:"; echo "$$out"; exit 1; fi
	go vet -tags $(TAGS) ./...
	go run $(STATICCHECK) -tags $(TAGS) ./...
	go test -tags $(TAGS) ./internal/architecture
	go mod tidy -diff
	go mod verify
	cd bench && go vet ./... && go mod tidy -diff && go test ./compared

BENCH_SECONDS ?= 2
bench: build ## the gateway beside ReverseProxy, its parts beside theirs, limits shared in Redis beside other ways to share them; about 15 minutes, fewer with BENCH_SECONDS=0.5
	cd bench && go run ./figures -binary ../agentgw -root .. -seconds $(BENCH_SECONDS)
	cd bench && go test -run Table -table -most 100000 .
	go test -tags $(TAGS) -run '^$$' -bench . -skip '/(keys=1000000|receipts=5000000)' -benchmem -benchtime 0.2s ./internal/identity ./internal/delegation ./internal/ratelimit ./internal/receipts ./internal/registry
	cd bench && go test ./shared -run Table -v -table

compare: ## other limiters asked what ours promises; writes docs/limiters-compared.md
	cd bench && go test ./compared -write
