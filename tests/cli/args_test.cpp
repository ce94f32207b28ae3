#include "cli/args.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bastion/options.h"
#include "cli/common.h"

namespace bastion::cli {
namespace {

/// All flags of an answering command, as `generate` declares them.
class ArgsTest : public ::testing::Test {
 protected:
    ArgsTest() {
        declare_prompt(flags, prompt);
        declare_method(flags, generate);
        declare_sampling(flags, generate.sampling);
        declare_engine(flags, engine);
    }

    void accept(const Args& args) {
        const Status status = flags.parse(args);
        ASSERT_TRUE(status.ok()) << status.error().message;
    }

    /// The sentence that refuses `args`.
    std::string refuse(const Args& args) {
        const Status status = flags.parse(args);
        EXPECT_FALSE(status.ok()) << args.front();
        if (status.ok()) return "";
        EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
        return status.error().message;
    }

    EngineOptions engine;
    GenerateOptions generate;
    PromptOptions prompt;
    Flags flags{"generate", "", "Answers."};
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(ArgsTest, ReadsBothFormsOfAFlag) {
    accept({"--threads", "3", "--ctx=512", "--target=a=b.gguf", "--device", "cuda0"});
    EXPECT_EQ(engine.threads, 3);
    EXPECT_EQ(engine.ctx, 512);
    EXPECT_EQ(engine.target, "a=b.gguf");
    EXPECT_EQ(engine.device, "cuda0");
    EXPECT_TRUE(flags.given("ctx"));
    EXPECT_FALSE(flags.given("drafter"));
}

TEST_F(ArgsTest, KeepsDefaultsWithoutArguments) {
    accept({});
    EXPECT_EQ(generate.method, Method::tree);
    EXPECT_EQ(generate.budget, 0);
    EXPECT_EQ(generate.max_tokens, 512);
    EXPECT_EQ(generate.sampling.top_p, 1.0);
}

TEST_F(ArgsTest, ReadsEveryEnumWord) {
    accept({"--method", "beam", "--controller", "ema+static", "--kv-type", "q8_0", "--kernels", "library"});
    EXPECT_EQ(generate.method, Method::beam);
    EXPECT_EQ(generate.controller, ControllerKind::ema_fixed_fit);
    EXPECT_EQ(engine.kv_type, KvType::q8_0);
    EXPECT_EQ(engine.kernels, Kernels::library);
    for (const char* controller : {"static", "ema", "curve"}) {
        accept({"--controller", controller});
        EXPECT_EQ(word(generate.controller), controller);
    }
}

TEST_F(ArgsTest, ListsTheWordsWhereOneIsWrong) {
    EXPECT_EQ(refuse({"--method", "dflash"}), "--method: expected ar, chain, tree or beam, got 'dflash'");
    EXPECT_TRUE(contains(refuse({"--kv-type", "f32"}), "f16, bf16 or q8_0"));
    EXPECT_TRUE(contains(refuse({"--controller", "Static"}), "static, ema, ema+static or curve"));
    EXPECT_TRUE(contains(refuse({"--kernels="}), "auto, packed, packed-avx2, packed-avx512, generic or library"));
}

TEST_F(ArgsTest, RefusesWholeNumbersThatAreNone) {
    for (const char* value :
         {"", "x", "1.5", "3x", " 3", "3 ", "+3", "0x10", "99999999999999999999", "2147483648", "-1", "1025", "nan"}) {
        EXPECT_TRUE(contains(refuse({std::string("--threads=") + value}), "--threads: expected a whole number"))
            << value;
    }
    EXPECT_TRUE(contains(refuse({"--max-tokens", "0"}), "from 1"));
    EXPECT_TRUE(contains(refuse({"--topk", "0"}), "from 1"));
    EXPECT_TRUE(contains(refuse({"--penalty-window", "-2"}), "from -1"));
    EXPECT_EQ(engine.threads, 0);
}

TEST_F(ArgsTest, RefusesNumbersThatAreNone) {
    for (const char* value : {"", "x", "nan", "inf", "-inf", "1e999", "0x1p3", "1,5", " 1", "1 ", "-0.1", "--"}) {
        EXPECT_TRUE(contains(refuse({std::string("--temperature=") + value}), "--temperature: expected a number"))
            << value;
    }
    EXPECT_TRUE(contains(refuse({"--top-p", "1.01"}), "from 0 to 1"));
    EXPECT_TRUE(contains(refuse({"--min-p", "-1"}), "from 0 to 1"));
    EXPECT_FALSE(refuse({"--repeat-penalty", "0"}).empty());
}

TEST_F(ArgsTest, ReadsNumbersWithSignAndExponent) {
    accept({"--temperature", "1.5e-1", "--presence-penalty", "-2", "--frequency-penalty=.5", "--penalty-window", "-1"});
    EXPECT_DOUBLE_EQ(generate.sampling.temperature, 0.15);
    EXPECT_DOUBLE_EQ(generate.sampling.presence_penalty, -2);
    EXPECT_DOUBLE_EQ(generate.sampling.frequency_penalty, 0.5);
    EXPECT_EQ(generate.sampling.penalty_window, -1);
}

TEST_F(ArgsTest, SeedsUseAll64Bits) {
    accept({"--seed", "18446744073709551615"});
    EXPECT_EQ(generate.sampling.seed, 18446744073709551615ull);
    refuse({"--seed", "18446744073709551616"});
    refuse({"--seed", "-1"});
}

TEST_F(ArgsTest, CollectsEveryStopText) {
    accept({"--stop", "\n\n", "--stop=END"});
    EXPECT_EQ(generate.stop, (std::vector<std::string>{"\n\n", "END"}));
    EXPECT_TRUE(contains(refuse({"--stop", ""}), "not empty"));
}

TEST_F(ArgsTest, SwitchesTakeNoValue) {
    accept({"--ignore-eos", "--raw", "--no-lookup", "--raw-confidence"});
    EXPECT_TRUE(generate.ignore_eos);
    EXPECT_TRUE(generate.no_lookup);
    EXPECT_TRUE(generate.raw_confidence);
    EXPECT_TRUE(prompt.raw);
    EXPECT_EQ(refuse({"--raw=yes"}), "--raw takes no value");
}

TEST_F(ArgsTest, SuggestsTheNearestFlag) {
    EXPECT_EQ(refuse({"--max-token", "3"}), "unknown flag --max-token, did you mean --max-tokens?");
    EXPECT_TRUE(contains(refuse({"--temprature=1"}), "--temperature?"));
    EXPECT_EQ(refuse({"--xyzzy-plugh"}), "unknown flag --xyzzy-plugh (see bastion generate --help)");
    EXPECT_TRUE(contains(refuse({"-n", "3"}), "two dashes"));
    EXPECT_TRUE(contains(refuse({"-"}), "unexpected argument"));
}

TEST_F(ArgsTest, NoticesAMissingValue) {
    EXPECT_EQ(refuse({"--ctx"}), "--ctx needs a value (N)");
    EXPECT_TRUE(contains(refuse({"--system", "--raw"}), "--system=--raw"));
    accept({"--system=--raw"});
    EXPECT_EQ(prompt.system, "--raw");
    EXPECT_FALSE(prompt.raw);
}

TEST_F(ArgsTest, RefusesArgumentsWithoutAFlag) {
    EXPECT_TRUE(contains(refuse({"hello"}), "unexpected argument 'hello'"));
    EXPECT_TRUE(contains(refuse({"--", "--raw"}), "unexpected argument '--raw'"));
}

TEST_F(ArgsTest, TheLastOfTwoValuesCounts) {
    accept({"--seed", "1", "--seed", "2"});
    EXPECT_EQ(generate.sampling.seed, 2u);
}

TEST_F(ArgsTest, ReadsBudgets) {
    accept({"--budget", "16"});
    EXPECT_EQ(generate.budget, 16);
    accept({"--budget", "auto"});
    EXPECT_EQ(generate.budget, 0);
    for (const char* value : {"0", "-1", "", "Auto", "1.5", "99999999999"}) {
        EXPECT_TRUE(contains(refuse({std::string("--budget=") + value}), "expected 'auto' or a whole number")) << value;
    }
}

TEST_F(ArgsTest, ReadsBeams) {
    accept({"--beam", "3x7"});
    EXPECT_EQ(generate.beam_width, 3);
    EXPECT_EQ(generate.beam_depth, 7);
    ASSERT_TRUE(settle_method(flags, generate).ok());
    EXPECT_EQ(generate.method, Method::beam) << "--beam alone selects the method";
    for (const char* value : {"", "4", "4x", "x4", "0x4", "4x0", "4X4", "4x4x4", "-1x4", "4x99999"}) {
        EXPECT_TRUE(contains(refuse({std::string("--beam=") + value}), "--beam: expected WIDTHxDEPTH")) << value;
    }
}

TEST_F(ArgsTest, BeamWithAnotherMethodIsRefused) {
    accept({"--beam", "3x7", "--method", "tree"});
    const Status status = settle_method(flags, generate);
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(contains(status.error().message, "--beam belongs to --method beam"));
}

TEST_F(ArgsTest, ReadsLogitBiases) {
    accept({"--logit-bias", "5=-inf", "--logit-bias=7=1.5"});
    ASSERT_EQ(generate.sampling.logit_bias.size(), 2u);
    EXPECT_EQ(generate.sampling.logit_bias[0].first, 5);
    EXPECT_TRUE(std::isinf(generate.sampling.logit_bias[0].second));
    EXPECT_LT(generate.sampling.logit_bias[0].second, 0);
    EXPECT_EQ(generate.sampling.logit_bias[1], std::make_pair(7, 1.5f));
    for (const char* value : {"", "5", "=1", "5=", "-1=1", "5=inf", "5=nan", "5=1e39", "a=1", "3000000000=1"}) {
        EXPECT_TRUE(contains(refuse({std::string("--logit-bias=") + value}), "expected ID=VALUE")) << value;
    }
}

TEST_F(ArgsTest, RawLeavesNoRoomForASystemMessage) {
    accept({"--raw", "--system", "be brief"});
    EXPECT_FALSE(check_prompt_options(flags, prompt).ok());
}

TEST_F(ArgsTest, SystemMessagesAreUtf8) {
    accept({"--system", "\xff"});
    EXPECT_FALSE(check_prompt_options(flags, prompt).ok());
}

TEST_F(ArgsTest, HelpNamesEveryFlagWithItsDefault) {
    accept({"--seed", "1", "--help", "--nonsense"});
    EXPECT_TRUE(flags.help_wanted());
    const std::string help = flags.help();
    for (const char* part : {"usage: bastion generate", "--target FILE", "--kv-type TYPE", "(default: f16)",
                             "--budget auto|N", "--beam WxD", "(default: 4x15)", "--stop TEXT", "--logit-bias ID=VALUE",
                             "--raw", "(default: 512)", "--no-think"}) {
        EXPECT_TRUE(contains(help, part)) << part;
    }
    for (std::size_t start = 0; start < help.size();) {
        const std::size_t end = help.find('\n', start);
        EXPECT_LE(end - start, 100u) << help.substr(start, end - start);
        start = end + 1;
    }
}

TEST(FlagsTest, TakesPositionalArgumentsUpToTheLimit) {
    std::vector<std::string> files;
    Flags flags("inspect", "", "");
    flags.positional(files, 2, "FILE", "model");
    ASSERT_TRUE(flags.parse({"a", "--", "--b"}).ok());
    EXPECT_EQ(files, (std::vector<std::string>{"a", "--b"}));
    EXPECT_FALSE(flags.parse({"c"}).ok());
}

TEST(FlagsTest, RemovedFlagsAreUnknown) {
    GenerateOptions options;
    Flags flags("bench", "", "");
    declare_method(flags, options);
    flags.remove("method");
    EXPECT_FALSE(flags.parse({"--method", "ar"}).ok());
    EXPECT_FALSE(contains(flags.help(), "--method"));
}

TEST(NearestTest, FindsSlipsButNotOtherWords) {
    const std::vector<std::string> names{"generate", "chat", "bench"};
    EXPECT_EQ(nearest("genrate", names), "generate");
    EXPECT_EQ(nearest("chta", names), "chat");
    EXPECT_EQ(nearest("serve", names), "");
    EXPECT_EQ(nearest("", names), "");
}

}  // namespace
}  // namespace bastion::cli
