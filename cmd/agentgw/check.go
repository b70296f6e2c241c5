package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"agentgw/internal/config"
	"agentgw/internal/gateway"
	"agentgw/internal/literal"
	"agentgw/internal/registry"
)

func (c *cli) checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a registry and the environment without starting",
		Long: `Check a registry and the environment without starting.

Prints every problem as file:line:column: path: what is wrong, and exits with 1.
Without a problem it prints the limits that hold for each key, tenant and
service, and exits with 0. Keys in the state store are not looked at.`,
		Args: atMostOne("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.check(cmd, args, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addSettingsFlags(cmd)
	return cmd
}

func (c *cli) check(cmd *cobra.Command, args []string, asJSON bool) error {
	path, named := "", true
	if len(args) == 1 {
		if cmd.Flags().Changed("registry") {
			return exit(exitUsage, errors.New("FILE and --registry both name the registry: give one of them"))
		}
		path = args[0]
	} else {
		var err error
		if path, named, err = config.RegistryPath(cmd.Flags(), c.environ); err != nil {
			if problems := problemsOf(err); problems != nil {
				return c.sayProblems(asJSON, problems)
			}
			return exit(exitCannotRun, err)
		}
	}
	snapshot, err := registry.Load(path)
	if err != nil && !errors.As(err, new(registry.Problems)) {
		if !named {
			err = sayWhatIsMissing(err)
		}
		return exit(exitCannotRun, err)
	}
	settings, configErr := c.loadSettings(cmd, snapshot, err)
	problems := slices.Concat(problemsOf(err), problemsOf(configErr), misruled(snapshot), together(snapshot, settings), unfitToStart(settings))
	if len(problems) > 0 {
		return c.sayProblems(asJSON, problems)
	}
	effective, err := snapshot.Effective(defaults(settings))
	if err != nil {
		return c.sayProblems(asJSON, problemsOf(err))
	}
	report := newReport(snapshot, effective, settings)
	report.Warnings = slices.Concat(report.Warnings, settings.Risks(), localLinks(settings, snapshot))
	if asJSON {
		return json.NewEncoder(c.stdout).Encode(report)
	}
	return report.print(c.stdout)
}

// finding is a problem as JSON. Outside a file, file is where the value came
// from (environment or flag) and path the setting's name there.
type finding struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Path   string `json:"path"`
	What   string `json:"what"`
}

// sayProblems prints what is wrong with the registry and the settings.
func (c *cli) sayProblems(asJSON bool, problems registry.Problems) error {
	problems.Sort()
	if !asJSON {
		fmt.Fprintln(c.stdout, problems)
		return exit(exitNotHold, nil)
	}
	found := make([]finding, len(problems))
	for i, p := range problems {
		found[i] = finding(p)
	}
	if err := json.NewEncoder(c.stdout).Encode(map[string]any{"ok": false, "problems": found}); err != nil {
		return err
	}
	return exit(exitNotHold, nil)
}

// report is what check says of a sound registry.
type report struct {
	OK       bool         `json:"ok"`
	File     string       `json:"file"`
	SHA256   string       `json:"sha256"`
	Scope    string       `json:"limits_are"`
	Keys     []limit      `json:"keys"`
	Tenants  []limit      `json:"tenants"`
	Services []limit      `json:"services"`
	Tunnels  *tunnelsLine `json:"tunnels,omitempty"` // absent: CONNECT is refused
	Process  processLine  `json:"process"`
	// Callers is absent where no service is open.
	Callers  *callersLine `json:"open_callers,omitempty"`
	Rules    []ruleLine   `json:"rules"`
	Warnings []string     `json:"warnings"`
}

// limit is one line of a table. A missing value is no limit.
type limit struct {
	Name           string   `json:"name"`
	RPS            *float64 `json:"rps"`
	Burst          *int     `json:"burst"`
	BurstDefaulted bool     `json:"burst_defaulted,omitempty"`
	MaxInflight    *int     `json:"max_inflight,omitempty"`
	Weight         int      `json:"weight,omitempty"` // of tenants
	Tenant         string   `json:"tenant,omitempty"`
	Timeout        string   `json:"timeout,omitempty"`

	// Where the numbers come from: see registry.Limits.
	Source            string `json:"source,omitempty"` // of the rate
	BurstSource       string `json:"burst_source,omitempty"`
	MaxInflightSource string `json:"max_inflight_source,omitempty"`
	WeightSource      string `json:"weight_source,omitempty"` // absent where nobody gives one
}

// others is the line for whoever the file does not name.
const others = "(all others)"

func newLimit(name string, l registry.Limits) limit {
	line := limit{Name: name, BurstDefaulted: l.BurstDefaulted, Source: l.RPSFrom, BurstSource: l.BurstFrom, MaxInflightSource: l.MaxInflightFrom}
	if l.RPS > 0 {
		line.RPS, line.Burst = &l.RPS, &l.Burst
	}
	if l.MaxInflight > 0 {
		line.MaxInflight = &l.MaxInflight
	}
	return line
}

func newReport(s *registry.Snapshot, e *registry.Effective, settings *config.Settings) report {
	r := report{
		OK: true, File: s.File, SHA256: s.Hash, Warnings: []string{},
		Scope: gateway.LimitsAre(settings), Process: newProcessLine(settings), Callers: newCallersLine(s, settings),
	}
	for _, k := range s.Keys {
		line := newLimit(k.ID, e.Key(k.Rate))
		line.Tenant = k.Tenant
		r.Keys = append(r.Keys, line)
	}
	for i := range s.Issuers {
		issuer := &s.Issuers[i]
		for _, scope := range issuer.Scopes {
			whose := scope.Claim + ": " + scope.Value
			if scope.When != "" {
				whose = "when " + literal.Mask(scope.When)
			}
			r.Keys = append(r.Keys, newLimit(fmt.Sprintf("oidc:%s (%s)", issuer.Issuer, whose), e.Key(scope.Rate)))
		}
		r.Keys = append(r.Keys, newLimit("oidc:"+issuer.Issuer, e.Key(issuer.Rate)))
	}
	r.Keys = append(r.Keys, newLimit(others, e.Key(nil)))
	for _, name := range slices.Sorted(maps.Keys(s.Tenants)) {
		line := newLimit(name, e.Tenant(name))
		if t := s.Tenants[name]; t.WeightPos.Line > 0 {
			line.WeightSource = t.WeightPos.String()
		}
		line.Weight = s.Tenants[name].Weight
		r.Tenants = append(r.Tenants, line)
	}
	line := newLimit(others, e.Tenant(""))
	line.Weight = 1
	r.Tenants = append(r.Tenants, line)
	r.Services = []limit{}
	for _, name := range slices.Sorted(maps.Keys(s.Services)) {
		service := s.Services[name]
		line := newLimit(name, e.Service(name))
		line.Timeout = literal.Span(service.Timeout)
		r.Services = append(r.Services, line)
	}
	r.Tunnels = newTunnelsLine(s.Tunnels)
	r.Rules = ruleLines(s)
	for _, w := range warnings(s) {
		r.Warnings = append(r.Warnings, w.Error())
	}
	return r
}

func (r report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s is sound. Limits are %s.\n", r.File, r.Scope)
	fmt.Fprintf(w, "\nKEY\tRPS\tBURST\tTENANT\tFROM\n")
	for _, l := range r.Keys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", l.Name, rateText(l.RPS), burstText(l), orDash(l.Tenant), rateFrom(l))
	}
	fmt.Fprintf(w, "\nTENANT\tRPS\tBURST\tFROM\tIN FLIGHT\tFROM\tWEIGHT\n")
	for _, l := range r.Tenants {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\n", l.Name, rateText(l.RPS), burstText(l), rateFrom(l), countText(l.MaxInflight), l.MaxInflightSource, l.Weight)
	}
	if len(r.Services) > 0 {
		fmt.Fprintf(w, "\nSERVICE\tRPS PER KEY\tBURST\tFROM\tIN FLIGHT\tFROM\tTIMEOUT\n")
	}
	for _, l := range r.Services {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Name, rateText(l.RPS), burstText(l), orDash(rateFrom(l)),
			countText(l.MaxInflight), orDash(l.MaxInflightSource), l.Timeout)
	}
	r.Tunnels.print(w)
	r.Process.print(w)
	r.Callers.print(w)
	printRules(w, r.Rules)
	if r.defaulted() {
		fmt.Fprintf(w, "\nA burst marked (defaulted) is not in the file: it is one second of its rate, at least 1.\n")
	}
	for i, text := range r.Warnings {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "warning: %s\n", text)
	}
	return w.Flush()
}

func (r report) defaulted() bool {
	return slices.ContainsFunc(slices.Concat(r.Keys, r.Tenants, r.Services), func(l limit) bool { return l.BurstDefaulted })
}

func rateText(rps *float64) string {
	if rps == nil {
		return "off"
	}
	return literal.Number(*rps)
}

// burstText marks a burst that the file did not give.
func burstText(l limit) string {
	if l.BurstDefaulted && l.Burst != nil {
		return countText(l.Burst) + " (defaulted)"
	}
	return countText(l.Burst)
}

func countText(n *int) string {
	if n == nil {
		return "off"
	}
	return strconv.Itoa(*n)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
