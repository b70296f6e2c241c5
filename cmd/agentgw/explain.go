package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/admin"
	"agentgw/internal/explain"
	"agentgw/internal/gateway"
	"agentgw/internal/identity"
	"agentgw/internal/literal"
	"agentgw/internal/oidc"
	"agentgw/internal/registry"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

func (c *cli) explainCommand() *cobra.Command {
	var q explain.Question
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain --key ID --service S --action A [--user U] [--client-ip A]",
		Short: "Tell which limits and rules a call meets, and where each comes from",
		Long: `Tell which limits and rules a call would meet, in the order in which they are
asked, what they are worth, whom they are charged to, and the file and line, or
the setting, that each comes from. Says so where the call would be refused
whatever is left: by scope, an unknown name, a key that is no longer valid, a
credential that nobody has set.

Who comes with a token of an issuer is named as in receipts: --key oidc:ISSUER#SUBJECT.
Where his scope, tenant or limits depend on what else the token says, give that as
--claims, which are no secret; the token itself is not asked for, nor verified.

No gateway has to run, and no call is made. Settings that one is started with by
flags or environment have to be given here too: every flag of agentgw serve is
taken. What holds in one that runs, what is left of it and who is blocked tells
GET /admin/v1/limits/explain on the operators' address.

Exits with 0 where the question is answered, also if the call would be refused;
2 where there is no such key or caller; 3 where registry, settings or store cannot be read.`,
		Example: `  agentgw explain --key ci-bot --service github --action list_issues --user user-42
  agentgw explain --key 'oidc:https://idp.example#alice' --claims '{"groups":["dev"]}' --service github --action list_issues`,
		Args: noArguments("the call is described by flags"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("user") && q.User == "" {
				return exit(exitUsage, errors.New("--user: is empty; leave it out for a call on nobody's behalf"))
			}
			if _, err := netip.ParseAddr(q.ClientIP); cmd.Flags().Changed("client-ip") && err != nil {
				return exit(exitUsage, errors.New("--client-ip: is not an IP address"))
			}
			if cmd.Flags().Changed("claims") && !explain.IsCaller(q.Key) {
				return exit(exitUsage, errors.New("--claims: are for --key oidc:ISSUER#SUBJECT, and say nothing of a key"))
			}
			a, err := c.explain(cmd, q)
			if err != nil {
				return err
			}
			if asJSON {
				return c.printJSON(a)
			}
			return c.printTable(func(w *tabwriter.Writer) { printAnswer(w, a) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.Key, "key", "", "the id of the key, never the key itself, or oidc:ISSUER#SUBJECT (required)")
	f.StringVar(&q.Claims, "claims", "", "what else the token of a caller says, as a JSON object")
	f.StringVar(&q.Service, "service", "", "the service (required)")
	f.StringVar(&q.Action, "action", "", "the action, or * for what /proxy is asked for that is none (required)")
	f.StringVar(&q.User, "user", "", "on whose behalf (on_behalf_of)")
	f.StringVar(&q.ClientIP, "client-ip", "", "from which address, for rules that look at it")
	f.BoolVar(&asJSON, "json", false, "print as JSON")
	for _, name := range []string{"key", "service", "action"} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // the flag is not there: a mistake in the lines above
		}
	}
	addHomeFlags(cmd)
	return cmd
}

// explain answers from the files, as a gateway would that started now.
func (c *cli) explain(cmd *cobra.Command, q explain.Question) (a explain.Answer, err error) {
	settings, snapshot, err := c.readSettings(cmd, toReload)
	if err != nil {
		return a, err
	}
	r, err := newRules(settings, snapshot)
	if err != nil {
		return a, exit(exitCannotRun, err)
	}
	answer := func(stored []store.Key, credentials []vault.Entry) error {
		a, err = r.explain(q, stored, time.Now(), gateway.Explainer{Vault: vault.NewIndex(credentials)})
		switch {
		case errors.Is(err, admin.ErrClaims):
			return exit(exitUsage, fmt.Errorf("--claims: %w", err))
		case errors.Is(err, admin.ErrNoSuchKey):
			return exit(exitUsage, fmt.Errorf("--key: %w", err))
		}
		return err
	}
	// A gateway that never ran has no store, and static keys need none.
	if missing := noState(settings); missing != nil {
		err := answer(nil, nil)
		if err != nil && !explain.IsCaller(q.Key) { // whom no store knows
			err = exit(exitCannotRun, errors.Join(err, missing))
		}
		return a, err
	}
	return a, c.inStore(cmd, home{settings: settings, snapshot: snapshot}, func(ctx context.Context, at home) error {
		stored, err := at.store.Keys(ctx)
		if err != nil {
			return exit(exitCannotRun, err)
		}
		credentials, err := vault.Entries(ctx, at.store)
		if err != nil {
			return exit(exitCannotRun, err)
		}
		return answer(stored, credentials)
	})
}

// noSuchKeyError says that neither registry nor state store has a key. The id is
// not repeated unless it is one: it may be the key itself.
type noSuchKeyError struct{ id, file string }

func (noSuchKeyError) Is(target error) bool { return target == admin.ErrNoSuchKey }

func (e noSuchKeyError) Error() string {
	if !registry.IsID(e.id) {
		return "is not the id of a key; give its id, never the key itself"
	}
	return fmt.Sprintf("there is no key %q, neither in %s nor in the state store", e.id, e.file)
}

// explain answers q by these rules. with has the levels of a gateway that runs.
func (r rules) explain(q explain.Question, stored []store.Key, now time.Time, with gateway.Explainer) (explain.Answer, error) {
	var key *identity.Key
	var unserved string
	if explain.IsCaller(q.Key) {
		var err error
		if key, err = r.caller(q); err != nil {
			return explain.Answer{}, err
		}
	} else if key, unserved = r.find(q.Key, stored); key == nil {
		return explain.Answer{}, noSuchKeyError{q.Key, r.snapshot.File}
	}
	with.Settings, with.Registry, with.Effective, with.Rules = r.settings, r.snapshot, r.effective, r.extra
	return with.Explain(q, key, unserved, now)
}

// caller returns what a caller of an issuer is given by these rules.
func (r rules) caller(q explain.Question) (*identity.Key, error) {
	key, err := oidc.Explained(r.snapshot.Issuers, r.extra.Conditions(), q.Key, q.Claims)
	switch {
	case errors.Is(err, oidc.ErrCaller):
		return nil, noSuchCallerError{r.snapshot.File}
	case err != nil:
		return nil, wrongClaimsError{err}
	}
	return key, nil
}

// noSuchCallerError says that no issuer of the registry has such a caller.
type noSuchCallerError struct{ file string }

func (noSuchCallerError) Is(target error) bool { return target == admin.ErrNoSuchKey }

func (e noSuchCallerError) Error() string {
	return fmt.Sprintf("is not oidc:ISSUER#SUBJECT of an issuer that %s has, as it is spelled there", e.file)
}

// wrongClaimsError says what is wrong with claims.
type wrongClaimsError struct{ error }

func (wrongClaimsError) Is(target error) bool { return target == admin.ErrClaims }

// find returns the key of that id, and why a gateway with these rules does not
// take it, if it does not.
func (r rules) find(id string, stored []store.Key) (key *identity.Key, unserved string) {
	keys, _ := allKeys(r.snapshot.Keys, stored)
	for _, k := range keys {
		if k.ID != id {
			continue
		}
		if k.Limits != nil {
			if err := r.effective.CheckKey(&registry.Rate{RPS: k.Limits.RPS, Burst: k.Limits.Burst}); err != nil {
				return k, "its own limit may not be run with: " + err.Error()
			}
		}
		return k, ""
	}
	for _, k := range stored {
		switch {
		case k.ID != id:
		case !k.RevokedAt.IsZero():
			return storedKey(k), "the key was revoked on " + when(&k.RevokedAt)
		default:
			return storedKey(k), "a key in the registry has the same text, and is served in its place"
		}
	}
	return nil, ""
}

// readHere is what an answer of the command cannot know.
const readHere = `Read from the files, flags and environment of this command. A gateway started with others has
other limits, and may have blocked the tenant: GET /admin/v1/limits/explain on its operators' address.`

// printAnswer is the answer for people.
func printAnswer(w *tabwriter.Writer, a explain.Answer) {
	whose := "with key "
	if explain.IsCaller(a.Key) {
		whose = "by "
	}
	call := fmt.Sprintf("%s.%s %s%s (%s)", printable(a.Service), printable(a.Action), whose, printable(a.Key), a.KeyFrom)
	if a.User != "" {
		call += " on behalf of " + printable(a.User)
	}
	fmt.Fprintf(w, "%s\n", call)
	switch r := a.Refused; {
	case r == nil && a.Tenant != "":
		fmt.Fprintf(w, "Charged to %s. Admitted while all of these have room:\n", printable(a.Tenant))
	case r != nil:
		fmt.Fprintf(w, "Refused at step %d with %d %s: %s", r.Step, r.Status, r.Code, printable(r.Why))
		if r.Source != "" {
			fmt.Fprintf(w, " (%s)", r.Source)
		}
		fmt.Fprintf(w, ".\nThe agent is told: %s\nUntil then it meets:\n", printable(r.Detail))
	}
	fmt.Fprintf(w, "\nSTEP\tLIMIT\tCHARGED TO\tVALUE\tFROM\n")
	for _, l := range a.Limits {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", l.Step, l.Policy, printable(l.ChargedTo), valueText(l), fromText(l))
	}
	for i, r := range a.Rules {
		if i == 0 {
			fmt.Fprintf(w, "\nSTEP\tRULE\tKEY\tWHEN\tCOUNT\tMAX\tWINDOW\tMODE\tFROM\tAPPLIES\n")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Step, r.Name, printable(r.Key), orDash(printable(r.When)), printable(r.Count), printable(r.Max),
			r.Window, r.Mode, r.Source, printable(r.Applies))
	}
	fmt.Fprintf(w, "\nLimits are %s.\n", a.LimitsAre)
	fmt.Fprintf(w, "%s\n", readHere)
}

// fromText is where a limit comes from.
func fromText(l explain.Limit) string {
	from := bothFrom(l.Source, l.BurstSource)
	if l.WaitSource != "" {
		from += ", wait: " + l.WaitSource
	}
	if l.WeightSource != "" {
		from += ", weight: " + l.WeightSource
	}
	return from
}

// valueText is a limit in a few words.
func valueText(l explain.Limit) string {
	switch {
	case l.Off:
		return "off"
	case l.Weight > 0:
		return fmt.Sprintf("%d in flight, weight %d", l.MaxInflight, l.Weight)
	case l.MaxInflight > 0:
		return fmt.Sprintf("%d in flight", l.MaxInflight)
	case l.Bytes > 0:
		return fmt.Sprintf("%d bytes in %s", l.Bytes, l.Window)
	case l.MaxQueued > 0:
		return fmt.Sprintf("%d may wait, %s at most", l.MaxQueued, l.Wait)
	case l.BurstDefaulted:
		return fmt.Sprintf("%s/s, burst %d (defaulted)", literal.Number(l.RPS), l.Burst)
	}
	return fmt.Sprintf("%s/s, burst %d", literal.Number(l.RPS), l.Burst)
}
