export interface Transform { readonly name: string }
