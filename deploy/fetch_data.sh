#!/usr/bin/env bash
# Puts public data sets where the jobs look for them: data/<set>, beside the folder that this script and jobs/ lie in, in
# the tree and where deploy/bundle.sh has been unpacked. Safe to repeat.
#
# What a file holds is checked against a SHA-256, unpacked: packers differ, contents do not.
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'END'
usage: fetch_data.sh [--from DIR] [--to DIR] [SET ...]
       fetch_data.sh --list | --help

  SET         a9a cifar10 delicious eurlex fashion_mnist mnist shakespeare speech; none: all of them
  --from DIR  take the files from DIR/<folder> instead of the network (--list shows the folders)
  --to DIR    put them in DIR/<set>; a job takes them from there with --set data.directory=DIR/<set>
              (default: data/ beside the folder of this script, where the jobs look)
END
}

# set | folder under --from | file | public address, or - | sha256 of the unpacked content
files() {
  local mnist=https://ossci-datasets.s3.amazonaws.com/mnist
  local fashion=https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion
  local libsvm=https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary
  cat <<END
a9a|a9a|a9a.gz|$libsvm/a9a|7ba53cccb27e2e525f0fb173e1f446d49856e3fb007eb43be4ec6d0f5b3335ca
a9a|a9a|a9a.t.gz|$libsvm/a9a.t|1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9
cifar10|cifar10_12k|train_10k.bin.gz|-|9a9fc2b3d8920c5ec2a07f7a448f55749c846b055afa134be6945f0385589e35
cifar10|cifar10_12k|test_2k.bin.gz|-|2840a72800fa11e51aac9bfac6a0574ac082e8cf330cfcbf7a7bc384c6304e76
delicious|delicious_xc|train.txt.gz|-|08ac8072e3af345c1d6ac5eeb77a960fb0fee4d55e5918a81f2c29a8f8feab6d
delicious|delicious_xc|test.txt.gz|-|0a8cd389bfced49f948f6c8d7ec014f1c5c893cce735dbe478e23dce05e0934e
eurlex|eurlex57k_xc|train.txt.gz|-|d4bd97bc1a38077b7ebceff592fe71e90b025eadd4ef8202fdd72b4e1da375fc
eurlex|eurlex57k_xc|test.txt.gz|-|8882adc0118d798322d313912ddc6f2e244ea4926966f872a6739d96e727db5b
fashion_mnist|fashion_mnist|train-images-idx3-ubyte.gz|$fashion/train-images-idx3-ubyte.gz|c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
fashion_mnist|fashion_mnist|train-labels-idx1-ubyte.gz|$fashion/train-labels-idx1-ubyte.gz|bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
fashion_mnist|fashion_mnist|t10k-images-idx3-ubyte.gz|$fashion/t10k-images-idx3-ubyte.gz|5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
fashion_mnist|fashion_mnist|t10k-labels-idx1-ubyte.gz|$fashion/t10k-labels-idx1-ubyte.gz|0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
mnist|mnist|train-images-idx3-ubyte.gz|$mnist/train-images-idx3-ubyte.gz|ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
mnist|mnist|train-labels-idx1-ubyte.gz|$mnist/train-labels-idx1-ubyte.gz|65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
mnist|mnist|t10k-images-idx3-ubyte.gz|$mnist/t10k-images-idx3-ubyte.gz|0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
mnist|mnist|t10k-labels-idx1-ubyte.gz|$mnist/t10k-labels-idx1-ubyte.gz|ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
shakespeare|tinyshakespeare|input.txt|https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt|86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
speech|arabic_speech_commands|train-logmel-idx3-ubyte.gz|-|2776c6fcf7654f8d9f9289796b602de3873ae5f9a452fec26c901b7b46464d7c
speech|arabic_speech_commands|train-labels-idx1-ubyte.gz|-|30c93e883d95fd3bce9650cf96792ee3b7f2da82192c30c1122e8c83b24d3e56
speech|arabic_speech_commands|test-logmel-idx3-ubyte.gz|-|3c5d4a4c75c33209f8466ffbf2dfadee45603bdc024ebbd0beee9a72a00733bb
speech|arabic_speech_commands|test-labels-idx1-ubyte.gz|-|20f31f5b2e9e2fd1f6ee83bd43be22e50805c03707efeb42c6b46fd7e36617c9
END
}

# Why a set without a public address has none, and where it comes from.
origin() {
  case "$1" in
    cifar10) echo "a class-balanced part of CIFAR-10 in its binary format; the full set: https://www.cs.toronto.edu/~kriz/cifar.html" ;;
    delicious) echo "the Delicious tags of the Mulan repository in XC text, with 12,920 training rows; from https://github.com/fcharte/mldr.datasets" ;;
    eurlex) echo "tf-idf words of the EURLEX57K documents in XC text; a copy of the documents: https://github.com/SalvatoreTucci/lmtc-emnlp2020-master" ;;
    speech) echo "log-mel features made from https://github.com/abdulkaderghandoura/arabic-speech-commands-dataset" ;;
  esac
}

fail() { echo "fetch_data.sh: $*" >&2; }

list() {
  printf '%-14s %-10s %s\n' set network "folder under --from"
  files | awk -F'|' '!seen[$1]++ {printf "%-14s %-10s %s\n", $1, ($4 == "-" ? "no" : "yes"), $2}'
}

holds() {  # FILE SHA256
  [[ "$(gzip -dcf -- "$1" 2>/dev/null | sha256sum | cut -d' ' -f1)" == "$2" ]]
}

# Texts come in one piece, of which the first nine tenths are to train on.
split_text() {  # SET
  local folder=$to/$1
  local whole=$folder/whole.part
  if gzip -dcf -- "$folder/input.txt" >"$whole"; then
    local bytes=$(($(wc -c <"$whole") * 9 / 10))
    if head -c "$bytes" "$whole" >"$folder/train.txt" && tail -c "+$((bytes + 1))" "$whole" >"$folder/test.txt"; then
      rm -f -- "$whole"
      return 0
    fi
  fi
  rm -f -- "$whole"
  fail "$1: cannot write $folder/train.txt and test.txt: is the disk full?"
  return 1
}

download() {  # URL FILE
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --retry 2 --connect-timeout 15 --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --tries=3 --timeout=15 --output-document="$2" "$1"
  else
    fail "neither curl nor wget is installed: apt-get install curl, or use --from DIR"
    return 1
  fi
}

# Puts one file into place, or says what to do.
fetch_file() {  # SET FOLDER FILE URL SHA256
  local set=$1 folder=$2 file=$3 url=$4 sha=$5
  local target=$to/$set/$file
  local part=$target.part
  local source=$url
  [[ -z "$from" ]] || source=$from/$folder
  if [[ -f "$target" ]] && holds "$target" "$sha"; then
    echo "$set/$file: there already"
    return 0
  fi
  if [[ -n "$from" && ! -f "$from/$folder/$file" ]]; then
    fail "$set: $from/$folder/$file is not there; --from wants the folder that holds $folder/"
    return 1
  elif [[ -z "$from" && "$url" == - ]]; then
    fail "$set: $file must come from a folder: --from DIR with DIR/$folder/$file ($(origin "$set"))"
    return 1
  fi
  mkdir -p "$to/$set" || { fail "cannot make $to/$set: choose another place with --to DIR"; return 1; }
  if [[ -n "$from" ]]; then
    cp -- "$from/$folder/$file" "$part" || { fail "$set: cannot copy $file to $to/$set"; return 1; }
  elif ! download "$url" "$part"; then
    rm -f -- "$part"
    fail "$set: cannot download $url; check the network, or use --from DIR with DIR/$folder/$file"
    return 1
  elif [[ "$url" != *.gz ]]; then
    gzip -n9 -c -- "$part" >"$part.gz" && mv -- "$part.gz" "$part"
  fi
  if ! holds "$part" "$sha"; then
    rm -f -- "$part"
    fail "$set: $file from $source does not hold what is expected (sha256 of the content is not $sha); get it elsewhere and use --from DIR"
    return 1
  fi
  chmod u+w -- "$part" && mv -- "$part" "$target" && echo "$set/$file: fetched"
}

from=
to=$root/data
sets=()
while [[ $# -gt 0 ]]; do
  case "$1" in
    --help) usage; exit 0 ;;
    --list) list; exit 0 ;;
    --from | --to)
      [[ $# -ge 2 && -n "$2" ]] || { fail "$1 wants a folder"; usage >&2; exit 2; }
      if [[ "$1" == --from ]]; then from=$2; else to=$2; fi
      shift 2
      ;;
    -*) fail "got \"$1\", want a flag below"; usage >&2; exit 2 ;;
    *) sets+=("$1"); shift ;;
  esac
done
if [[ -n "$from" && ! -d "$from" ]]; then
  fail "--from: $from is no folder"
  exit 2
fi
known=$(files | cut -d'|' -f1 | sort -u)
[[ ${#sets[@]} -gt 0 ]] || mapfile -t sets <<<"$known"
for set in "${sets[@]}"; do
  grep -qxF -- "$set" <<<"$known" || { fail "got \"$set\", want one of ${known//$'\n'/ }"; exit 2; }
done

failed=0
for set in "${sets[@]}"; do
  while IFS='|' read -r name folder file url sha; do
    [[ "$name" == "$set" ]] || continue
    fetch_file "$name" "$folder" "$file" "$url" "$sha" || { failed=1; break; }
  done < <(files)
  [[ "$set" != shakespeare || ! -f "$to/$set/input.txt" ]] || split_text "$set" || failed=1
done
exit "$failed"
