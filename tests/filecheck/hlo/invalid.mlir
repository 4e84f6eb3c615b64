// RUN: rhino-opt %s --split-input-file --verify-diagnostics

func.func @main(%x: tensor<4xf32>, %y: tensor<5xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{operand is used with type tensor<4xf32>}}
  %0 = hlo.add %x, %y : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xi32>) -> tensor<4xi32> {
  %0 = hlo.exp %x : tensor<4xi32> // expected-error {{hlo.exp: operand 0 is i32[4], but hlo.exp takes float or complex elements}}
  func.return %0 : tensor<4xi32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xi1> {
  // expected-error @below {{no comparison 'less'}}
  %0 = hlo.compare "less", %x, %x : tensor<4xf32> -> tensor<4xi1>
  func.return %0 : tensor<4xi1>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<5xi1> {
  // expected-error @below {{result 0 has type i1[5], but its operands give i1[4]}}
  %0 = hlo.compare "lt", %x, %x : tensor<4xf32> -> tensor<5xi1>
  func.return %0 : tensor<5xi1>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{operand 0 is used before its definition}}
  %0 = hlo.exp %1 : tensor<4xf32>
  %1 = hlo.exp %0 : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{unknown op 'hlo.epx'; did you mean hlo.exp?}}
  %0 = hlo.epx %x : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @main() -> tensor<2xf16> {
  // expected-error @below {{65520.0 does not fit f16}}
  %0 = hlo.constant dense<[1.0, 65520.0]> : tensor<2xf16>
  func.return %0 : tensor<2xf16>
}

// -----

func.func @main() -> tensor<2xi8> {
  // expected-error @below {{300 does not fit i8}}
  %0 = hlo.constant dense<300> : tensor<2xi8>
  func.return %0 : tensor<2xi8>
}

// -----

func.func @main() -> tensor<2x2xi8> {
  // expected-error @below {{a literal of shape [3] for the type i8[2, 2]}}
  %0 = hlo.constant dense<[1, 2, 3]> : tensor<2x2xi8>
  func.return %0 : tensor<2x2xi8>
}

// -----

func.func @main() -> tensor<4xi32> {
  // expected-error @below {{no dimension 1 in i32[4]}}
  %0 = hlo.iota 1 : tensor<4xi32>
  func.return %0 : tensor<4xi32>
}

// -----

func.func @main(%s: tensor<i64>, %i: tensor<4xi32>) -> tensor<4xf32> {
  // expected-error @below {{operand 1 is i32[4], but indices must be i64}}
  %0 = hlo.random_uniform %s, %i to f32 : tensor<i64>, tensor<4xi32> -> tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{results are f32[4], but the region yields f32[4], f32[4]}}
  %0 = hlo.composite "id"(%x) : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    hlo.yield %a, %a : tensor<4xf32>, tensor<4xf32>
  }
  func.return %0 : tensor<4xf32>
}
