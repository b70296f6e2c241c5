// Sdks is a program as its users write them with OpenAI's and Anthropic's official
// SDKs for Go, for TestOfficialSDKs: where the API is, and the key, it has from the
// environment, as the SDKs read it, and nothing is set besides. Each line that it
// reads is a call to make, and is answered with one: what the SDK made of it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
)

// call is what is asked for: the stub takes the model's name for what it is to do.
type call struct {
	Model  string `json:"model"`
	Stream bool   `json:"stream"`
	Size   int    `json:"size"` // of the prompt
}

// outcome is what a user of the SDK gets: the text, as far as it came, and the error.
type outcome struct {
	Text  string   `json:"text"`
	Error *failure `json:"error,omitempty"`
}

// failure is an error as the SDK has it. Class is its type.
type failure struct {
	Class     string `json:"class"`
	Status    int    `json:"status,omitempty"`
	Type      string `json:"type,omitempty"`
	Code      string `json:"code,omitempty"`
	Message   string `json:"message,omitempty"`
	RequestID string `json:"request_id,omitempty"`
	Says      string `json:"says"`
}

func main() {
	make, known := map[string]func(context.Context, call) outcome{"openai": askOpenAI(), "anthropic": askAnthropic()}[os.Args[1]]
	if !known {
		log.Fatalf("no SDK %q", os.Args[1])
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var c call
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(make(context.Background(), c)); err != nil {
			log.Fatal(err)
		}
	}
}

func prompt(size int) string { return fmt.Sprintf("%*s", max(size, 2), "hi") }

func askOpenAI() func(context.Context, call) outcome {
	client := openai.NewClient()
	return func(ctx context.Context, c call) (o outcome) {
		params := openai.ChatCompletionNewParams{Model: c.Model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt(c.Size))}}
		var err error
		if c.Stream {
			stream := client.Chat.Completions.NewStreaming(ctx, params)
			for stream.Next() {
				if choices := stream.Current().Choices; len(choices) > 0 {
					o.Text += choices[0].Delta.Content
				}
			}
			err = stream.Err()
		} else {
			var got *openai.ChatCompletion
			if got, err = client.Chat.Completions.New(ctx, params); err == nil {
				o.Text = got.Choices[0].Message.Content
			}
		}
		var e *openai.Error
		switch {
		case errors.As(err, &e):
			o.Error = &failure{Class: "openai.Error", Status: e.StatusCode, Type: e.Type, Code: e.Code, Message: e.Message, RequestID: e.Response.Header.Get("X-Request-Id"), Says: e.Error()}
		case err != nil:
			o.Error = &failure{Class: fmt.Sprintf("%T", err), Says: err.Error()}
		}
		return o
	}
}

func askAnthropic() func(context.Context, call) outcome {
	client := anthropic.NewClient()
	return func(ctx context.Context, c call) (o outcome) {
		params := anthropic.MessageNewParams{Model: anthropic.Model(c.Model), MaxTokens: 16, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt(c.Size)))}}
		var err error
		if c.Stream {
			stream := client.Messages.NewStreaming(ctx, params)
			for stream.Next() {
				if delta := stream.Current(); delta.Type == "content_block_delta" {
					o.Text += delta.Delta.Text
				}
			}
			err = stream.Err()
		} else {
			var got *anthropic.Message
			if got, err = client.Messages.New(ctx, params); err == nil {
				o.Text = got.Content[0].Text
			}
		}
		var e *anthropic.Error
		switch {
		case errors.As(err, &e):
			o.Error = &failure{Class: "anthropic.Error", Status: e.StatusCode, Type: string(e.Type()), Message: e.Message, RequestID: e.RequestID, Says: e.Error()}
		case err != nil:
			o.Error = &failure{Class: fmt.Sprintf("%T", err), Says: err.Error()}
		}
		return o
	}
}
