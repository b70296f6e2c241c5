package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Exit codes. They are part of the contract with scripts: change none.
const (
	exitDone      = 0 // what was asked is done, what was checked holds
	exitNotHold   = 1 // the thing checked does not hold (check, verify)
	exitUsage     = 2 // a mistake in the command line, or a key that is not trusted
	exitCannotRun = 3 // could not run: cannot read, cannot bind, bad settings
	exitUnproven  = 4 // verify: holds as far as it can be checked
)

// cli is one run of the program: its streams and its environment. Tests make
// their own and call run, so that no test needs a process to try a flag.
type cli struct {
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	environ []string
}

// exitError is an error that knows the exit code that it asks for. An Err of
// nil means that everything has been said already and nothing is to be printed.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// exit returns an error that ends the program with code after printing err,
// or silently where err is nil.
func exit(code int, err error) error { return &exitError{code: code, err: err} }

// run executes the command line args and returns the exit code.
func (c *cli) run(args []string) int {
	root := c.rootCommand()
	root.SetArgs(args)
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	err := root.Execute()
	if err == nil {
		return exitDone
	}
	var e *exitError
	if !errors.As(err, &e) {
		// Whatever cobra itself refuses is a mistake in the command line.
		e = &exitError{code: exitUsage, err: err}
	}
	if e.err != nil {
		fmt.Fprintf(c.stderr, "agentgw: %v\n", e.err)
	}
	return e.code
}

// rootCommand builds the tree anew for each run: cobra's usual package-level
// commands keep the flags of one run for the next, which no test could bear.
func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "agentgw",
		Short:         "A gateway with concurrency control for the tools that AI agents call",
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       buildVersion(),
		Args:          aCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetVersionTemplate(versionLine())
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(c.helpCommand())
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		c.checkCommand(),
		c.completionCommand(),
		c.credentialsCommand(),
		c.delegationsCommand(),
		c.demoCommand(),
		c.explainCommand(),
		c.healthCommand(),
		c.keysCommand(),
		c.receiptsCommand(),
		c.serveCommand(),
		c.versionCommand(),
	)
	return root
}
