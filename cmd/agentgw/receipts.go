package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"agentgw/internal/receipts"
)

func (c *cli) receiptsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receipts",
		Short: "List, show and verify the receipts",
		Long: `List, show and verify the receipts: the record of every call that was allowed
or refused. All of it works on the data folder, whether a gateway is running or not.`,
		Args: aCommand,
		RunE: c.needCommand,
	}
	cmd.AddCommand(
		c.receiptsListCommand(),
		c.receiptsShowCommand(),
		c.receiptsTailCommand(),
		c.receiptsVerifyCommand(),
		c.receiptsProveCommand(),
		c.receiptsExportCommand(),
		c.receiptsOpenCommand(),
		c.receiptsShredCommand(),
		c.receiptsKeyCommand(),
		c.receiptsRotateKeyCommand(),
		c.receiptsCheckpointCommand(),
	)
	return cmd
}

// dataFolder finds the data folder as serve does.
func (c *cli) dataFolder(cmd *cobra.Command) (string, error) {
	settings, _, err := c.settingsWithoutRegistry(cmd)
	if err != nil {
		return "", err
	}
	return settings.DataDir, nil
}

// receiptsFolder finds the folder with the segments.
func (c *cli) receiptsFolder(cmd *cobra.Command) (string, error) {
	data, err := c.dataFolder(cmd)
	if err != nil {
		return "", err
	}
	if err := noFolder(data); err != nil {
		return "", exit(exitCannotRun, err)
	}
	folder, err := receipts.Folder(data)
	if err != nil {
		return "", exit(exitCannotRun, err)
	}
	return folder, nil
}

// receiptsFolders are those of the given paths, or that of the settings.
func (c *cli) receiptsFolders(cmd *cobra.Command, paths []string) (folders []string, err error) {
	if len(paths) == 0 {
		folder, err := c.receiptsFolder(cmd)
		return []string{folder}, err
	}
	for _, path := range paths {
		folder, err := receipts.Folder(path)
		if err != nil {
			return nil, exit(exitCannotRun, err)
		}
		folders = append(folders, folder)
	}
	return folders, nil
}

func (c *cli) receiptsShowCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Show the records of one receipt",
		Long: `Show the records of one receipt: for an admitted call its intent and its outcome.
The id is the one in the Agentgate-Receipt header, alone or as it stands there, id="...".
Exits with 1 where there is none.`,
		Args: oneArgument("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			folder, err := c.receiptsFolder(cmd)
			if err != nil {
				return err
			}
			id := bareID(args[0])
			records, err := receipts.FindIn(folder, id)
			if err != nil {
				return exit(exitCannotRun, err)
			}
			if len(records) == 0 {
				return noReceipt(id, folder, folder)
			}
			if asJSON {
				return c.printJSON(struct {
					ID      string            `json:"id"`
					Records []json.RawMessage `json:"records"`
				}{id, records})
			}
			for i, line := range records {
				if i > 0 {
					fmt.Fprintln(c.stdout)
				}
				if err := c.showRecord(line); err != nil {
					return exit(exitCannotRun, err)
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// showRecord prints one member a line, in the order in which they are stored.
func (c *cli) showRecord(line []byte) error {
	d := json.NewDecoder(strings.NewReader(string(line)))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		fmt.Fprintf(c.stdout, "%-13s%s\n", name, printable(text))
	}
	return nil
}

func (c *cli) receiptsKeyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "key",
		Short: "Print the verifier key of the log",
		Long: `Print the verifier key: the public key that checks the log's signatures. Keep it
where the gateway cannot write, for "receipts verify --vkey".`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			data, err := c.dataFolder(cmd)
			if err != nil {
				return err
			}
			vkey, err := receipts.VerifierKeyOf(data)
			if errors.Is(err, fs.ErrNotExist) {
				return exit(exitCannotRun, fmt.Errorf("%s: no receipt log there yet: its key is made when a gateway first runs", data))
			}
			if err != nil {
				return exit(exitCannotRun, err)
			}
			if asJSON {
				return c.printJSON(map[string]string{"vkey": vkey})
			}
			_, err = fmt.Fprintln(c.stdout, vkey)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) receiptsCheckpointCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "checkpoint",
		Short: "Print the newest signed checkpoint",
		Long: `Print the newest signed checkpoint: the log's size and the hash of all its entries.
Kept where the gateway cannot write, it is an anchor: "receipts verify --anchor" then
shows that nothing before it was removed.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			folder, err := c.receiptsFolder(cmd)
			if err != nil {
				return err
			}
			signed, err := receipts.NewestCheckpoint(folder)
			if err != nil {
				return exit(exitCannotRun, err)
			}
			if asJSON {
				return c.printJSON(map[string]string{"checkpoint": string(signed)})
			}
			_, err = c.stdout.Write(signed)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

func (c *cli) printJSON(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printable takes out of a text what a terminal would act on: a receipt holds
// names that strangers chose.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// noReceipt says that a receipt is not there, and where it may have gone.
func noReceipt(id, place, folder string) error {
	if n, err := receipts.PrunedBefore(folder); err == nil && n > 0 {
		return exit(exitNotHold, fmt.Errorf("no receipt %q in %s; retention has removed its first %d entries (pruned), of which it may have been", id, place, n))
	}
	return exit(exitNotHold, fmt.Errorf("no receipt %q in %s", id, place))
}
